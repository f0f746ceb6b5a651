#!/usr/bin/env bash
# Preference training of the tiny model, after run.sh: the whole stage in a minute. The model still babbles.
# Usage: recipes/tiny/preference.sh OUTPUT     (that of run.sh; pip install '.[train,eval]')
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: recipes/tiny/preference.sh OUTPUT}
export OMP_NUM_THREADS=1
manifest=$work/corpus/utterances.jsonl
model=$work/tiny
stage=$work/preference

echo "1. Mine: the model clones recordings, and then clones its output."
marstts preference mine "$model" --references "$manifest" --texts "$here/../mini/text/modern.tsv.gz" \
    --config "$here/mine.toml" --output "$stage/mined" --workers 1

echo "2. Pairs: metrics score the takes; the worst are paired with the recordings."
marstts preference pairs "$stage/mined" --config "$here/pairs.toml" --output "$stage/pairs.jsonl" --workers 1

echo "3. Train: the model is trained on the pairs, and is validated on held-out speakers."
marstts evaluate testset "$manifest" --speakers 2 --sentences 4 --output "$stage/testset.jsonl"
marstts preference train "$model" --pairs "$stage/pairs.jsonl" --held-out "$stage/testset.jsonl" \
    --config "$here/preference.toml" --output "$stage/run" --threads 1

echo "4. Export: the best weights become a bundle."
marstts export "$stage/run" --template "$model" --name tiny-preference --output "$work/tiny-preference"
