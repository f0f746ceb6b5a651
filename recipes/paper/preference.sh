#!/usr/bin/env bash
# The preference stage of MARS6 as published (Sec. IV-A), after run.sh: mine cycles, rank them by Whisper and UTMOS, train with
# ORPO. An interrupted run resumes.
#
#   pip install 'marstts[train,data,released,eval,eval-models]'
#   recipes/paper/preference.sh WORK_FOLDER
#
# Variables: CORPUS that lends its voices (libriheavy), WORKERS that generate and score (1), GPUS of this machine (all).
set -euo pipefail
work=${1:?usage: recipes/paper/preference.sh WORK_FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
manifest=$work/manifests/${CORPUS:-libriheavy}/utterances.jsonl
model=$work/bundle
stage=$work/preference

marstts preference mine "$model" --references "$manifest" --texts "$here/../mini/text/modern.tsv.gz" \
    --config "$here/mine.toml" --output "$stage/mined" --workers "${WORKERS:-1}"
marstts preference pairs "$stage/mined" --config "$here/pairs.toml" --output "$stage/pairs.jsonl" \
    --workers "${WORKERS:-1}"

marstts evaluate testset "$manifest" --speakers 20 --sentences 200 --output "$stage/validation.jsonl"
torchrun --standalone --nproc-per-node "${GPUS:-gpu}" --no-python marstts preference train "$model" \
    --pairs "$stage/pairs.jsonl" --held-out "$stage/validation.jsonl" --config "$here/preference.toml" \
    --output "$stage/run"

marstts export "$stage/run" --template "$model" --name mars6-preference --output "$work/bundle-preference"
