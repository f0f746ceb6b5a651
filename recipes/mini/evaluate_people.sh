#!/usr/bin/env bash
# Scores models in the voices of held-out readers, and espeak-ng and resynthesis by the codec; every step resumes.
# Usage: recipes/mini/evaluate_people.sh WORK_FOLDER [PEOPLE_FOLDER [MODEL...]]
#   PEOPLE_FOLDER holds utterances.tsv and its recordings (`prepare people`), default: people; MODEL: a bundle, default: mini
#   METRICS=default, as in METRICS=default,faster-whisper=FOLDER; LIMIT=104 trials of each test set; WORKERS=1 processes for
#   the metrics; CLONE=shallow, deep or both; models without aligned heads clone references of more than 12 s as shallow
#   ones only
# Readers are LibriSpeech's and LibriTTS's of no training split. This flatters the packaged mini, whose decoder heard readers of all splits
# (docs/data/corpora.md): for it, PEOPLE_FOLDER should hold test people (src/marstts_lab/data/test_people.tsv). Needs the extra eval and espeak-ng.
#   WORK_FOLDER/voices   sentences of the synthetic test set in the readers' voices: similarity, own reference first
#   WORK_FOLDER/texts    the readers' own sentences: CER over the codec's, length over the recording's
# results.md and results.json of both have a row for each system, and differences on the same trials with their intervals.
set -euo pipefail
work=${1:?the folder of takes and scores}
people=${2:-people}
models=("${@:3}")
[ ${#models[@]} -gt 0 ] || models=(mini)
: "${LIMIT:=104}" "${CLONE:=shallow}" "${WORKERS:=1}" "${METRICS:=default}"
export OMP_NUM_THREADS=1
systems=()
for model in "${models[@]}"; do systems+=(--system "$model"); done

marstts prepare people --root "$people" --output "$work/readers" --min-seconds 2 \
    --exclude ljspeech --exclude common_voice --exclude vctk --exclude cmu_arctic
options=("${systems[@]}" --limit "$LIMIT" --clone "$CLONE" --workers "$WORKERS" --metrics "$METRICS")
marstts evaluate "${options[@]}" --testset real-speakers --root "$work/readers" --baselines espeak-ng \
    --metrics-model none --output "$work/voices"
marstts evaluate "${options[@]}" --testset "$work/readers/utterances.jsonl" --metrics-model "${models[0]}" \
    --baselines ground-truth,codec-resynthesis,espeak-ng --output "$work/texts"
