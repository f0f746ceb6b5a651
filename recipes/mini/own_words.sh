#!/usr/bin/env bash
# MARS6 of mini learns words from its own takes, by policy gradient; begins with the packaged weights. About 1.5 hours of two cores.
# Usage: recipes/mini/own_words.sh WORK_FOLDER NAMES [RECOGNIZER] [KEPT]     (WORK_FOLDER: that of phones.sh, with its corpora; NAMES:
# the folder of the package `names`; RECOGNIZER: a size or folder of faster-whisper, another one than the judges'; KEPT: a file of
# texts, one a line, that are kept for tests)
#
# PARENT: folder of the bundle that is trained (the packaged mini).
#
#   pip install '.[train,eval]' swift-f0 pyworld distillmos
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: recipes/mini/own_words.sh WORK_FOLDER NAMES [RECOGNIZER] [KEPT]"
work=${1:?$usage} names=${2:?$usage} recognizer=${3:-tiny.en} kept=${4:-} parent=${PARENT:-$here/../../src/marstts/models_data/mini}
takes=$work/own_words
export OMP_NUM_THREADS=1
mkdir -p "$takes"
marstts doctor --extra train --folder "$work" --free-gb 1

echo "1. MARS6."
torchrun --nproc-per-node "$(nproc)" "$here/policy_gradient.py" "$parent" "$work/people/utterances.jsonl" "$takes/run" \
    --names "$names" --recognizer "$recognizer" ${kept:+--without "$kept"}

echo "2. The bundle."
marstts export "$takes/run" --template "$parent" --phones contours --name mini --output "$takes/mini"
