#!/usr/bin/env bash
# mini's marks of intonation learn from ends of its own questions, and its codec to hold the pitch of soft sound; begins with the
# packaged weights. All texts without marks keep their codes. About 2 hours of a core, most of it for the pairs.
# The packaged predictor of pitch was trained on the pairs of own_takes.sh instead, before the marks.
# Usage: recipes/mini/own_marks.sh WORK_FOLDER [RECOGNIZER]     (WORK_FOLDER: that of phones.sh, with its corpora; RECOGNIZER: a name
# or folder of faster-whisper, another one than the judges')
#
# PARENT: folder of the bundle that is trained (the packaged mini).
#
#   pip install '.[train,synthetic,eval]' swift-f0 pyworld distillmos
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: recipes/mini/own_marks.sh WORK_FOLDER [RECOGNIZER]"
work=${1:?$usage} recognizer=${2:-tiny.en} parent=${PARENT:-$here/../../src/marstts/models_data/mini}
takes=$work/own_marks
export OMP_NUM_THREADS=1
mkdir -p "$takes"
marstts doctor --extra train --folder "$work" --free-gb 1

echo "1. Pairs of ends of own questions."
for seed in 871 872 873 874 875 876 877; do
    [ -e "$takes/questions-$seed.jsonl" ] || python "$here/pairs_of_sounds.py" "$parent" "$work/people/utterances.jsonl" \
        "$takes/questions-$seed.jsonl" --kind questions --texts 64 --seed $seed --recognizer "$recognizer"
done

echo "2. The marks."
python "$here/questions.py" "$parent" "$takes/run" --config "$here/own_marks.toml" --pairs "$takes"/questions-87[1-7].jsonl

echo "3. The codec's pitch."
[ -e "$takes/codec" ] ||
    python "$here/pitch.py" "$parent/codec" "$parent/codec/speaker" "$takes/codec" --pairs "$takes"/questions-87[1-7].jsonl

echo "4. The bundle."
marstts export "$takes/run" --template "$parent" --codec "$takes/codec" --name mini --output "$takes/mini"
