#!/usr/bin/env bash
# MARS6 of mini learns to read letters with phones, beginning with the packaged weights. About 2 hours of two cores. An interrupted run resumes.
# Usage: recipes/mini/phones.sh WORK_FOLDER PEOPLE_FOLDER
#
#   PEOPLE_FOLDER: utterances.tsv and recordings (people.tsv.gz lists them; docs/data/corpora.md)
#
# Variables: NAMES: folder of dist.all.last and others of the package names; MARSTTS_KOKORO: folder of Kokoro-82M (docs/data/corpora.md);
# PARENT: folder of the bundle whose letters teach (the packaged mini); its codes, encoders and decoders stay.
#
#   pip install '.[train,synthetic]' misaki[en]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: recipes/mini/phones.sh WORK_FOLDER PEOPLE_FOLDER"
work=${1:?$usage} people=${2:?$usage} names=${NAMES:-names} kokoro=${MARSTTS_KOKORO:-kokoro} parent=${PARENT:-$here/../../src/marstts/models_data/mini}
cores=$(nproc)  # before the next line, which nproc would obey
export OMP_NUM_THREADS=1
marstts doctor --extra train --folder "$work" --free-gb 4

echo "1. The corpora: people; names and words by Kokoro, and copies of both whose pitch rises at the end, for own_takes.sh and questions.sh."
marstts prepare people --root "$people" --output "$work/people" --exclude ljspeech --audio flac
[ -e "$work/names/utterances.jsonl" ] || python "$here/kokoro_names.py" "$names" "$work/names" --hours 0.7 --kokoro "$kokoro"
for corpus in people names; do
    [ -e "$work/raised_$corpus/utterances.jsonl" ] ||
        python "$here/raised_ends.py" "$work/$corpus/utterances.jsonl" "$work/raised_$corpus" --model "$parent" --count 400
done

echo "2. Codes and embeddings."
for corpus in people names raised_people raised_names; do
    marstts tokenize "$work/$corpus/utterances.jsonl" --output "$work/shards/$corpus" --workers "$cores" \
        --codec "$parent/codec" --identity "$parent/identity" --style "$parent/style"
done

echo "3. MARS6."
torchrun --nproc-per-node "$cores" --no-python marstts train mars6 --config "$here/mars6_graphones.toml" --threads 1 \
    --data "$work/shards/people" --init-from "$parent" --output "$work/mars6_graphones"

echo "4. The bundle."
marstts export "$work/mars6_graphones" --template "$parent" --phones graphones --name mini --output "$work/mini"
