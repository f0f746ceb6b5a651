#!/usr/bin/env bash
# MARS6 of mini learns from its own takes: preference training of names, words and questions, beginning with the packaged weights.
# About an hour of two cores.
# Usage: recipes/mini/own_takes.sh WORK_FOLDER NAMES [RECOGNIZER]     (WORK_FOLDER: that of phones.sh, with its corpora; NAMES: the
# folder of the package `names`; RECOGNIZER: a name or folder of faster-whisper, another one than the judges')
#
# PARENT: folder of the bundle that is trained (the packaged mini).
#
#   pip install '.[train,synthetic,eval]' swift-f0 pyworld distillmos
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: recipes/mini/own_takes.sh WORK_FOLDER NAMES [RECOGNIZER]"
work=${1:?$usage} names=${2:?$usage} recognizer=${3:-tiny.en} parent=${PARENT:-$here/../../src/marstts/models_data/mini}
takes=$work/own_takes
export OMP_NUM_THREADS=1
mkdir -p "$takes"
marstts doctor --extra train --folder "$work" --free-gb 1

echo "1. Pairs of own takes."
for seed in 501 502 503 504; do
    [ -e "$takes/names-$seed.jsonl" ] || python "$here/pairs_of_sounds.py" "$parent" "$work/people/utterances.jsonl" \
        "$takes/names-$seed.jsonl" --kind names --texts 96 --seed $seed --names "$names" --recognizer "$recognizer"
done
for seed in 701 702 711 712; do
    [ -e "$takes/questions-$seed.jsonl" ] || python "$here/pairs_of_sounds.py" "$parent" "$work/people/utterances.jsonl" \
        "$takes/questions-$seed.jsonl" --kind questions --texts 64 --seed $seed --recognizer "$recognizer"
done

echo "2. MARS6."
python "$here/questions.py" "$parent" "$takes/run" --config "$here/own_takes.toml" \
    --pairs "$takes"/names-50[1-4].jsonl "$takes"/questions-7{01,02,11,12}.jsonl:2

echo "3. The bundle."
marstts export "$takes/run" --template "$parent" --name mini --output "$takes/mini"
