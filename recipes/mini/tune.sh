#!/usr/bin/env bash
# Preference tuning of mini with the studio corpus; every step goes on where it stopped.
# Usage: recipes/mini/tune.sh WORK_FOLDER     (the one of run.sh, with the corpus and the model in it; about a quarter of
# an hour of two cores, twice that where the model needs guidance; pip install 'marstts[train,eval]')
# RANK=own recipes/mini/tune.sh WORK_FOLDER   pairs the same takes with one another, and goes on from there: what ships.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?where are the corpus and the model?}
rank=rank${RANK:+_$RANK}
cores=$(nproc)  # before the next line, which nproc would believe
export OMP_NUM_THREADS=1
manifest=$work/studio/utterances.jsonl
model=$work/mini
stage=$work/preference
tuned=$work/mini-tuned${RANK:+-$RANK}

echo "1. The model speaks in everyone's voice, and then in the voice of what it said."
marstts mine "$model" --references "$manifest" --texts "$here/text/modern.tsv.gz" --config "$here/mine.toml" \
    --output "$stage/mined" --workers "$cores"

echo "2. Judges listen; the worst takes are paired with what should have been said."
marstts rank "$stage/mined" --config "$here/$rank.toml" --output "$stage/$rank.jsonl" --workers "$cores"

echo "3. The model learns what not to say; people it never heard say whether it helped."
marstts evaluate testset "$manifest" --speakers 8 --sentences 40 --output "$stage/checkup.jsonl"
torchrun --nproc-per-node "$cores" --no-python marstts tune "$model" --pairs "$stage/$rank.jsonl" \
    --held-out "$stage/checkup.jsonl" --config "$here/tune.toml" --output "$stage/run-$rank" --threads 1

echo "4. The best weights become a model of their own."
marstts export "$stage/run-$rank/best" --like "$model" --name "$(basename "$tuned")" --output "$tuned"

echo "5. Both models speak 200 sentences that nobody listened to before, with the same seeds."
marstts evaluate testset "$manifest" --speakers 8 --sentences 200 --style any --without "$stage/checkup.jsonl" \
    --output "$stage/final.jsonl"
marstts evaluate --system "$model" --system "$tuned" --clone shallow --beside "" --testset "$stage/final.jsonl" \
    --judges sphinx,word-test,resemblyzer,identity --workers "$cores" --output "$stage/evaluation"
