#!/usr/bin/env bash
# The preference stage of MARS6 as published (Sec. IV-A), after run.sh: mine cycles, rank them by Whisper and UTMOS, train with
# ORPO. An interrupted run resumes. Recordings of full bandwidth lend their voices, so LibriHeavy does only by itself.
#
#   pip install '.[train,data,released,eval,eval-models]'
#   recipes/paper/preference.sh WORK_FOLDER
#
# Variables: CORPORA that lend their voices (all of run.sh), HELD_OUT corpus of validation (libriheavy), with its SPEAKERS
# (20) and SENTENCES (200), WORKERS that generate and score (1), RAY address of a cluster that does so (then WORKERS: all of it),
# GPUS of this machine (all).
set -euo pipefail
work=${1:?usage: recipes/paper/preference.sh WORK_FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
read -ra corpora <<< "${CORPORA:-libriheavy globe vctk anispeech}"
model=$work/bundle
stage=$work/preference
many=(${WORKERS:+--workers "$WORKERS"} ${RAY:+--ray "$RAY"})

references=()
for corpus in "${corpora[@]}"; do
    references+=(--references "$work/manifests/$corpus/utterances.jsonl")
done
[ -f "$stage/validation.jsonl" ] ||
    marstts evaluate testset "$work/manifests/${HELD_OUT:-libriheavy}/utterances.jsonl" --speakers "${SPEAKERS:-20}" \
        --sentences "${SENTENCES:-200}" --output "$stage/validation.jsonl"
marstts preference mine "$model" "${references[@]}" --texts "$here/../mini/text/modern.tsv.gz" \
    --config "$here/mine.toml" --output "$stage/mined" "${many[@]}"
marstts preference pairs "$stage/mined" --config "$here/pairs.toml" --output "$stage/pairs.jsonl" "${many[@]}"

torchrun --standalone --nproc-per-node "${GPUS:-gpu}" --no-python marstts preference train "$model" \
    --pairs "$stage/pairs.jsonl" --held-out "$stage/validation.jsonl" --config "$here/preference.toml" \
    --output "$stage/run"

marstts export "$stage/run" --template "$model" --name mars6-preference --output "$work/bundle-preference"
