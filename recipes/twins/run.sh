#!/usr/bin/env bash
# The paper's methods on mini's data, each beside a twin without it: a BPE against bytes (with more steps, for its merges
# are new), at equal steps the flux loss against none, ORPO and DPO on the paper's pairs against neither. All begin with mini's weights.
# About 3 core-hours of a processor with bfloat16, half of them for the evaluation; an interrupted run resumes.
# Usage: recipes/twins/run.sh WORK_FOLDER TESTSET     (WORK_FOLDER: that of phones.sh, with its corpora and shards; TESTSET: 400 sentences
# or more of people who are held out, `marstts evaluate testset`)
#
# PARENT: folder of the bundle from which the twins begin (the packaged mini).
#
#   pip install '.[train,eval]'
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: recipes/twins/run.sh WORK_FOLDER TESTSET"
work=${1:?$usage} testset=${2:?$usage} parent=${PARENT:-$here/../../src/marstts/models_data/mini}
out=$work/twins people=$work/shards/people
cores=$(nproc)
export OMP_NUM_THREADS=1
mkdir -p "$out"
marstts doctor --extra train --folder "$work" --free-gb 1

echo "1. A BPE against bytes, the flux loss against none."
python "$here/bpe.py" "$here/mars6_bpe.toml" "$people" "$out/bpe" --base "$parent"
for twin in bytes flux; do
    marstts train mars6 --config "$here/mars6_$twin.toml" --data "$people" --output "$out/$twin" --init-from "$parent" --threads 1
done

echo "2. Cycles and their pairs, as in the paper; ORPO, and DPO."
marstts preference mine "$parent" --references "$work/people/utterances.jsonl" --texts "$here/../mini/text/modern.tsv.gz" \
    --config "$here/mine.toml" --output "$out/mined" --workers "$cores"
marstts preference pairs "$out/mined" --config "$here/pairs.toml" --output "$out/pairs.jsonl" --workers "$cores"
for twin in orpo dpo; do
    python "$here/../mini/questions.py" "$parent" "$out/$twin" --pairs "$out/pairs.jsonl" --config "$here/preference_$twin.toml"
done

echo "3. Bundles, and takes of the same seeds."
systems=(--system "$parent")
for twin in bpe bytes flux orpo dpo; do
    marstts export "$out/$twin" --template "$parent" --phones none --name "$twin" --output "$out/bundles/$twin"
    systems+=(--system "$out/bundles/$twin")
done
marstts evaluate "${systems[@]}" --testset "$testset" --clone shallow --baselines "" --workers "$cores" --output "$out/evaluation"
