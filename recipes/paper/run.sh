#!/usr/bin/env bash
# MARS6 as published, from corpora to a bundle; preference.sh and evaluate.sh continue from there. An interrupted run
# resumes. docs/data/corpora.md has sizes and licenses of the corpora.
#
#   pip install '.[train,data,released]'
#   recipes/paper/run.sh WORK_FOLDER [CORPORA_FOLDER]
#
# CORPORA_FOLDER holds libriheavy, globe, vctk and anispeech as they were unpacked; `marstts prepare NAME --help` has their
# addresses. The paper's fifth corpus, ccv2, has no transcripts: docs/data/corpora.md tells how to make its manifest. Variables:
#   CORPORA   names of the corpora, to leave some out, or to add ccv2 (libriheavy globe vctk anispeech)
#   DEVICE    of tokenization: cuda for all GPUs, or cpu (cuda);  WORKERS: its processes (one for each GPU)
#   RAY       address of a Ray cluster whose nodes share WORK_FOLDER: tokenization on all of it (docs/data/corpora.md)
#   HOURS     of speech in the corpora, for the estimate that the data stage begins with (46000, the paper's)
#   GPUS      processes that train on this machine, any number (all GPUs)
#   STAGES    some of: data train export (all)
#   TORCHRUN  for several machines that share WORK_FOLDER, such as "--nnodes 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500":
#             run STAGES=data on one of them, then STAGES=train on each, then STAGES=export on one
#   CODEC, IDENTITY, STYLE  (snac, wavlm, clap);  FREE_GB  that the disk of WORK_FOLDER must have (80: shards 70, checkpoints)
# The data stage begins with a check of weights (which are fetched), packages, GPU and disk, before any corpus is read.
set -euo pipefail
work=${1:?usage: recipes/paper/run.sh WORK_FOLDER [CORPORA_FOLDER]}
roots=${2:-$work/corpora}
here=$(cd "$(dirname "$0")" && pwd)
read -ra corpora <<< "${CORPORA:-libriheavy globe vctk anispeech}"
parts=(--codec "${CODEC:-snac}" --identity "${IDENTITY:-wavlm}" --style "${STYLE:-clap}")

manifests=() shards=()
for corpus in "${corpora[@]}"; do
    manifests+=("$work/manifests/$corpus/utterances.jsonl")
    shards+=(--data "$work/shards/$corpus")
done

stage() { [[ " ${STAGES:-data train export} " == *" $1 "* ]]; }

if stage data; then
    marstts estimate --config "$here/mars6.toml" --hours "${HOURS:-46000}" ${GPUS:+--gpus "$GPUS"}
    marstts doctor "${parts[@]}" --extra train --extra data --device "${DEVICE:-cuda}" \
        --folder "$work" --free-gb "${FREE_GB:-80}"
    unprepared=()
    for corpus in "${corpora[@]}"; do
        [ -f "$work/manifests/$corpus/utterances.jsonl" ] || unprepared+=("$corpus")
    done
    [ ${#unprepared[@]} = 0 ] || marstts prepare check "${unprepared[@]}" --root "$roots"
    for corpus in "${unprepared[@]}"; do
        marstts prepare "$corpus" --root "$roots/$corpus" --output "$work/manifests/$corpus"
    done
    for corpus in "${corpora[@]}"; do
        marstts tokenize "$work/manifests/$corpus/utterances.jsonl" --output "$work/shards/$corpus" "${parts[@]}" \
            --device "${DEVICE:-cuda}" ${WORKERS:+--workers "$WORKERS"} ${RAY:+--ray "$RAY"}
    done
    mkdir -p "$work/mars6"
    [ -f "$work/mars6/tokenizer.json" ] ||
        marstts train tokenizer "${manifests[@]}" --vocab-size 512 --output "$work/mars6/tokenizer.json"
fi

if stage train; then
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # or a restart may look for processes that are dead
    # shellcheck disable=SC2086 - TORCHRUN holds several words
    torchrun ${TORCHRUN:---standalone} --nproc-per-node "${GPUS:-gpu}" --max-restarts 10 --no-python \
        marstts train mars6 --config "$here/mars6.toml" "${shards[@]}" --output "$work/mars6"
fi

if stage export; then
    marstts export "$work/mars6" "${parts[@]}" --name mars6 --output "$work/bundle"
fi
