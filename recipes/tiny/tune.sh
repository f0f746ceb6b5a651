#!/usr/bin/env bash
# Preference tuning of the tiny model, after run.sh: the whole stage in a minute. It babbles on.
# Usage: recipes/tiny/tune.sh OUTPUT     (the one of run.sh; pip install 'marstts[train,eval]')
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: recipes/tiny/tune.sh OUTPUT}
export OMP_NUM_THREADS=1
manifest=$work/corpus/utterances.jsonl
model=$work/tiny

echo "1. The model speaks in everyone's voice, and then in the voice of what it said."
marstts mine "$model" --references "$manifest" --texts "$here/../mini/text/modern.tsv.gz" --config "$here/mine.toml" \
    --output "$work/preference/mined" --workers 1

echo "2. Judges listen; the worst takes are paired with the recordings."
marstts rank "$work/preference/mined" --config "$here/rank.toml" --output "$work/preference/pairs.jsonl" \
    --workers 1

echo "3. The model learns what not to say; people it never heard say whether it helped."
marstts evaluate testset "$manifest" --speakers 2 --sentences 6 --output "$work/preference/testset.jsonl"
marstts tune "$model" --pairs "$work/preference/pairs.jsonl" --held-out "$work/preference/testset.jsonl" \
    --config "$here/tune.toml" --output "$work/preference/run" --threads 1

echo "4. The best weights become a model of their own."
marstts export "$work/preference/run/best" --like "$model" --name tiny-tuned --output "$work/tiny-tuned"
