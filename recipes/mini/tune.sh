#!/usr/bin/env bash
# Preference tuning of mini with the studio corpus; every step goes on where it stopped.
# Usage: recipes/mini/tune.sh WORK_FOLDER     (the one of run.sh, with the corpus and the model in it; about 20 minutes of
# one core; pip install 'marstts[train,eval]')
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?where are the corpus and the model?}
export OMP_NUM_THREADS=1
manifest=$work/studio/utterances.jsonl
model=$work/mini

echo "1. The model speaks in everyone's voice, and then in the voice of what it said."
marstts mine "$model" --references "$manifest" --texts "$here/text/modern.tsv.gz" --config "$here/mine.toml" \
    --output "$work/preference/mined" --workers "$(nproc)"

echo "2. Judges listen; the worst takes are paired with the recordings."
marstts rank "$work/preference/mined" --config "$here/rank.toml" --output "$work/preference/pairs.jsonl" \
    --workers "$(nproc)"

echo "3. The model learns what not to say; people it never heard say whether it helped."
marstts evaluate testset "$manifest" --speakers 8 --sentences 40 --output "$work/preference/testset.jsonl"
marstts tune "$model" --pairs "$work/preference/pairs.jsonl" --held-out "$work/preference/testset.jsonl" \
    --config "$here/tune.toml" --output "$work/preference/run" --threads 1

echo "4. The best weights become a model of their own."
marstts export "$work/preference/run/best" --codec "$model/codec" --identity "$model/identity" --style "$model/style" \
    --name mini-tuned --output "$work/mini-tuned"
