#!/usr/bin/env bash
# MARS6 of mini learns to ask: preference training of sentence ends, beginning with the packaged weights. About an hour of two cores.
# Usage: recipes/mini/questions.sh WORK_FOLDER GENERATOR     (WORK_FOLDER: that of phones.sh, with its corpora and shards;
# GENERATOR: a bundle of phones.sh, exported with `--phones given`, some of whose questions rise)
#
# PARENT: folder of the bundle that is trained (the packaged mini).
#
#   pip install '.[train,synthetic,eval]' swift-f0 pyworld
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: recipes/mini/questions.sh WORK_FOLDER GENERATOR"
work=${1:?$usage} generator=${2:?$usage} parent=${PARENT:-$here/../../src/marstts/models_data/mini}
export OMP_NUM_THREADS=1
mkdir -p "$work/questions"
marstts doctor --extra train --folder "$work" --free-gb 1

echo "1. Pairs: recordings with their raised copies, and ends of the generator's own takes."
[ -e "$work/questions/raised.jsonl" ] || python "$here/raised_pairs.py" "$parent" "$work/questions/raised.jsonl" \
    --raised "$work"/shards/raised_people "$work"/shards/raised_names --recordings "$work"/shards/people "$work"/shards/names
[ -e "$work/questions/takes.jsonl" ] || python "$here/pairs_of_sounds.py" "$generator" "$work/people/utterances.jsonl" \
    "$work/questions/takes.jsonl" --kind questions --texts 170 --seed 11

echo "2. MARS6."
python "$here/questions.py" "$parent" "$work/questions/run" --pairs "$work/questions/raised.jsonl" "$work/questions/takes.jsonl:4"

echo "3. The bundle."
marstts export "$work/questions/run" --template "$parent" --phones contours --name mini --output "$work/questions/mini"
