#!/usr/bin/env bash
# Trains the mini codec on recordings of people and on synthetic speech; every step resumes.
# Usage: recipes/mini/codec_people.sh WORK_FOLDER [PEOPLE_FOLDER]
#   PEOPLE_FOLDER holds utterances.tsv and its recordings (`marstts prepare people`); default: people
# Debian packages: flite, and from non-free rhvoice, rhvoice-english and libttspico-utils;
# pip install 'marstts[train,synthetic,eval]'
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?the folder of corpora and runs}
people=${2:-people}
cores=$(nproc)  # before the next line, which nproc would believe
export OMP_NUM_THREADS=1

marstts prepare people --root "$people" --output "$work/people" --exclude ljspeech --audio flac
marstts prepare synthetic --config "$here/synthetic.toml" --output "$work/synthetic" --workers "$cores" \
    --sentences "$here/text/english.txt.gz:0.2" --sentences "$here/text/modern.tsv.gz:0.72" \
    --sentences "$here/text/short.tsv.gz:0.08"
for corpus in people synthetic; do
    marstts prepare f0 "$work/$corpus/utterances.jsonl" --workers "$cores"
    marstts prepare phone-alignments "$work/$corpus/utterances.jsonl" --hours 4 --workers "$cores"
done

marstts train codec --config "$here/codec_people.toml" --output "$work/codec_people" --init-from "$here/../../src/marstts/models_data/mini/codec" \
    --data "$work/people/utterances.jsonl:0.6" --data "$work/synthetic/utterances.jsonl:0.4" --threads "$cores"

# the decoder with discriminators that are trained alone for the first 1,000 steps; codes stay valid
marstts train codec --config "$here/codec_people_decoder.toml" --output "$work/codec_people_decoder" \
    --init-from "$work/codec_people" --export "$work/export/codec" --name mini-codec-4 \
    --data "$work/people/utterances.jsonl:0.6" --data "$work/synthetic/utterances.jsonl:0.4" --threads "$cores"
