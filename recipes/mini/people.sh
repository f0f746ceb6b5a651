#!/usr/bin/env bash
# Trains the packaged mini further on recordings of people and on synthetic speech; every step resumes. Codes stay valid.
# Usage: recipes/mini/people.sh WORK_FOLDER [PEOPLE_FOLDER]
#   PEOPLE_FOLDER holds utterances.tsv and its recordings (people.tsv.gz lists them with sources; docs/data/corpora.md);
#   default: people
# Debian packages and extras as for run.sh. About 3 hours of one core.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?the folder of corpora and runs}
people=${2:-people}
mini=$here/../../src/marstts/models_data/mini
cores=$(nproc)  # before the next line, which nproc would obey
export OMP_NUM_THREADS=1

marstts prepare people --root "$people" --output "$work/people" --exclude ljspeech --audio flac
marstts prepare synthetic --config "$here/synthetic.toml" --output "$work/synthetic" --workers "$cores" \
    --sentences "$here/text/english.txt.gz:0.2" --sentences "$here/text/modern.tsv.gz:0.72" \
    --sentences "$here/text/short.tsv.gz:0.08"
for corpus in people synthetic; do
    marstts prepare f0 "$work/$corpus/utterances.jsonl" --workers "$cores"
done

marstts train speaker --config "$here/identity_people.toml" --init-from "$mini/identity" --output "$work/identity" \
    --export "$work/export/identity" --data "$work/people/utterances.jsonl" --data "$work/synthetic/utterances.jsonl"
mkdir -p "$work"
printf 'base = "%s"\n[speaker_consistency]\nencoder = "%s"\nweight = 2.0\n' \
    "$here/codec_people_warp.toml" "$work/export/identity" > "$work/codec.toml"
marstts train codec --config "$work/codec.toml" --init-from "$mini/codec" --output "$work/codec" \
    --data "$work/people/utterances.jsonl:0.6" --data "$work/synthetic/utterances.jsonl:0.4"
for corpus in people synthetic; do
    marstts preference mine mini --references "$work/$corpus/utterances.jsonl" --texts "$here/text/modern.tsv.gz" \
        --output "$work/takes/$corpus" --config "$here/mine_$corpus.toml" --workers "$cores"
done
printf 'base = "%s"\n[speaker_consistency]\nencoder = "%s"\nweight = 2.0\n' \
    "$here/codec_people_generated.toml" "$work/export/identity" > "$work/codec_generated.toml"
printf '[generated_codes]\ntakes = ["%s", "%s"]\nbatch_size = 6\nweight = 3.0\n' \
    "$work/takes/people" "$work/takes/synthetic" >> "$work/codec_generated.toml"
marstts train codec --config "$work/codec_generated.toml" --init-from "$work/codec" --output "$work/codec_generated" \
    --export "$work/export/codec" --name mini-codec-3 \
    --data "$work/people/utterances.jsonl:0.6" --data "$work/synthetic/utterances.jsonl:0.4"

encoders=(--codec "$mini/codec" --style "$mini/style" --workers "$cores")
marstts tokenize "$work/synthetic/utterances.jsonl" --output "$work/shards/synthetic" "${encoders[@]}" \
    --identity "$work/export/identity"
marstts tokenize "$work/people/utterances.jsonl" --output "$work/shards/people" "${encoders[@]}" \
    --identity "$work/export/identity" --trim silence --max-pause 0.35 --loudness -23
# the same synthetic recordings with the embeddings of the earlier identity encoder
marstts tokenize "$work/synthetic/utterances.jsonl" --output "$work/shards/earlier" "${encoders[@]}" \
    --identity "$mini/identity"

marstts train mars6 --config "$here/mars6_people.toml" --data "$work/shards/people" --data "$work/shards/synthetic" \
    --init-from "$mini" --transfer-from "$work/shards/earlier" --output "$work/mars6"
marstts train mars6 --config "$here/mars6_people_guidance.toml" --data "$work/shards/people" \
    --data "$work/shards/synthetic" --init-from "$work/mars6" --output "$work/mars6_guidance"

marstts export "$work/mars6_guidance" --codec "$work/export/codec" --identity "$work/export/identity" \
    --style "$mini/style" --name mini --spelling simple --output "$work/mini"
WORKERS=$cores "$here/evaluate_people.sh" "$work/evaluation" "$people" "$work/mini"
