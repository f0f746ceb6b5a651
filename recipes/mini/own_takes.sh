#!/usr/bin/env bash
# MARS6 of mini learns from its own takes, and its codec to hold the pitch of soft sound; begins with the packaged weights.
# Preference training of names, words and sentences, then of ends of questions, then the mean of both. About 4 hours of two cores.
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

make_pairs() {  # MODEL KIND TEXTS SEED OPTIONS
    [ -e "$takes/$2-$4.jsonl" ] || python "$here/pairs_of_sounds.py" "$1" "$work/people/utterances.jsonl" \
        "$takes/$2-$4.jsonl" --kind "$2" --texts "$3" --seed "$4" --recognizer "$recognizer" "${@:5}"
}

echo "1. Names, words and sentences."
for seed in 861 862 863 864 865 866 867 868 882 883 884 885 886 887 888; do
    make_pairs "$parent" names 96 $seed --names "$names"
done
python "$here/questions.py" "$parent" "$takes/run_names" --config "$here/own_takes.toml" --pairs "$takes"/names-*.jsonl
[ -e "$takes/names" ] ||
    marstts export "$takes/run_names" --template "$parent" --phones contours --name mini --output "$takes/names"

echo "2. Ends of questions, with a third of the other pairs."
for seed in 871 872 873 874 875; do
    make_pairs "$takes/names" questions 64 $seed
done
ends=()
for file in "$takes"/questions-*.jsonl; do
    ends+=("$file:2")
done
python "$here/questions.py" "$takes/names" "$takes/run_questions" --config "$here/own_takes_questions.toml" \
    --pairs "${ends[@]}" "$takes"/names-86[4-8].jsonl

echo "3. The mean of both, which keeps words better than the second alone."
[ -e "$takes/run" ] || python "$here/mean_of_runs.py" "$takes/run_questions" "$takes/run_names" "$takes/run"

echo "4. The codec's pitch."
[ -e "$takes/codec" ] || python "$here/pitch.py" "$parent/codec" "$parent/codec/speaker" "$takes/codec" --pairs "$takes"/names-86*.jsonl

echo "5. The bundle."
marstts export "$takes/run" --template "$parent" --codec "$takes/codec" --phones contours --name mini --output "$takes/mini"
