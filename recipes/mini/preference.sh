#!/usr/bin/env bash
# Preference training of mini on its own takes, ranked by Whisper and by similarity to the voice. An interrupted run resumes.
# Usage: recipes/mini/preference.sh WORK_FOLDER     (that of run.sh, with the corpus and the model; about an hour of two
# cores; pip install '.[train,eval]')
# With people in WORK_FOLDER (run.sh with PEOPLE_FOLDER), their recordings lend the voices, else the synthetic ones.
# METRICS are those of the evaluation (default).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: recipes/mini/preference.sh WORK_FOLDER}
cores=$(nproc)  # before the next line, which nproc would obey
export OMP_NUM_THREADS=1
manifest=$work/people/utterances.jsonl
[ -f "$manifest" ] || manifest=$work/synthetic/utterances.jsonl
model=$work/mini
stage=$work/preference
trained=$work/mini-preference

echo "1. Mine: the model speaks sentences in the voices of recordings, four times each, as shallow and as deep clones."
for kind in mine mine_deep; do
    marstts preference mine "$model" --references "$manifest" --texts "$here/text/modern.tsv.gz" \
        --config "$here/$kind.toml" --output "$stage/$kind" --workers "$cores"
done

echo "2. Pairs: takes are scored by words and similarity; worse ones are paired with better ones of the same sentence."
for kind in mine mine_deep; do
    marstts preference pairs "$stage/$kind" --config "$here/pairs.toml" --output "$stage/$kind.jsonl" --workers "$cores"
done

echo "3. Train: the model is trained on the pairs, and is validated on held-out speakers."
marstts evaluate testset "$manifest" --speakers 8 --sentences 40 --output "$stage/validation.jsonl"
torchrun --nproc-per-node "$cores" --no-python marstts preference train "$model" --pairs "$stage/mine.jsonl" \
    --pairs "$stage/mine_deep.jsonl" --held-out "$stage/validation.jsonl" --config "$here/preference.toml" \
    --output "$stage/run" --threads 1

echo "4. Export: the best weights become a bundle."
marstts export "$stage/run" --template "$model" --name "$(basename "$trained")" --output "$trained"

echo "5. Evaluate: both models speak 200 other sentences with the same seeds."
marstts evaluate testset "$manifest" --speakers 8 --sentences 200 --style any --exclude "$stage/validation.jsonl" \
    --output "$stage/final.jsonl"
marstts evaluate --system "$model" --system "$trained" --clone shallow --baselines "" \
    --testset "$stage/final.jsonl" --metrics "${METRICS:-default}" --workers "$cores" \
    --output "$stage/evaluation"
