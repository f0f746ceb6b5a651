#!/usr/bin/env bash
# MARS6 as published, from five corpora to a bundle; preference.sh continues from there. An interrupted run resumes.
#
#   pip install 'marstts[train,data,released]'
#   recipes/paper/run.sh WORK_FOLDER [CORPORA_FOLDER]
#
# CORPORA_FOLDER holds libriheavy, globe, vctk, anispeech and ccv2 as they were unpacked; `marstts prepare NAME --help` has
# their addresses. Variables: DEVICE (cuda), WORKERS that tokenize (1), GPUS of this machine (all), and for several
# machines TORCHRUN, such as "--nnodes 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500": then run this on each of them once
# the shards, in a folder that all share, are complete.
set -euo pipefail
work=${1:?usage: recipes/paper/run.sh WORK_FOLDER [CORPORA_FOLDER]}
corpora=${2:-$work/corpora}
here=$(cd "$(dirname "$0")" && pwd)

manifests=() shards=()
for corpus in libriheavy globe vctk anispeech ccv2; do
    marstts prepare "$corpus" --root "$corpora/$corpus" --output "$work/manifests/$corpus"
    manifests+=("$work/manifests/$corpus/utterances.jsonl")
    marstts tokenize "$work/manifests/$corpus/utterances.jsonl" --output "$work/shards/$corpus" \
        --codec snac --identity wavlm --style clap --device "${DEVICE:-cuda}" --workers "${WORKERS:-1}"
    shards+=(--data "$work/shards/$corpus")
done

mkdir -p "$work/mars6"
[ -f "$work/mars6/tokenizer.json" ] ||
    marstts train tokenizer "${manifests[@]}" --vocab-size 512 --output "$work/mars6/tokenizer.json"

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # or a restart may look for processes that are dead
# shellcheck disable=SC2086 - TORCHRUN holds several words
torchrun ${TORCHRUN:---standalone} --nproc-per-node "${GPUS:-gpu}" --max-restarts 10 --no-python \
    marstts train mars6 --config "$here/mars6.toml" "${shards[@]}" --output "$work/mars6" --max-corrupt 0.01 --codec snac

marstts export "$work/mars6" --codec snac --identity wavlm --style clap --name mars6 --output "$work/bundle"
