#!/usr/bin/env bash
# A MARS5 of 1.2 billion parameters on EnCodec's codes, from manifests to a bundle. An interrupted run resumes.
#
#   pip install '.[train,data,released]'
#   recipes/mars5/run.sh WORK_FOLDER MANIFEST...
#
# MANIFESTs are the files of `marstts prepare`. A process needs 15 GB for weights, gradients, optimizer and EMA of the AR;
# gradient checkpointing keeps the activations small. Variables: DEVICE (cuda), WORKERS that tokenize (one for each GPU), GPUS
# (all), TORCHRUN as in recipes/paper/run.sh, FREE_GB that the disk must have (60: checkpoints; codes of 1,000 hours are 4 GB).
# It begins with a check of weights (which are fetched), packages, GPU and disk. Nobody has run this recipe whole.
set -euo pipefail
work=${1:?usage: recipes/mars5/run.sh WORK_FOLDER MANIFEST...}
shift
here=$(cd "$(dirname "$0")" && pwd)

marstts doctor --codec encodec --extra train --extra data --device "${DEVICE:-cuda}" --folder "$work" \
    --free-gb "${FREE_GB:-60}"

more=() number=0
for manifest in "$@"; do
    marstts tokenize "$manifest" --output "$work/shards/$number" --codec encodec --identity toy:8 --style toy:8 \
        --device "${DEVICE:-cuda}" ${WORKERS:+--workers "$WORKERS"}
    [ "$number" = 0 ] || more+=(--data "$work/shards/$number")
    number=$((number + 1))
done

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # or a restart may look for processes that are dead
# shellcheck disable=SC2206 - TORCHRUN holds several words
run=(torchrun ${TORCHRUN:---standalone} --nproc-per-node "${GPUS:-gpu}" --max-restarts 10 --no-python)
"${run[@]}" marstts train mars5-ar --config "$here/ar.toml" --data "$work/shards/0" "${more[@]}" --output "$work/ar"
"${run[@]}" marstts train mars5-nar --config "$here/nar.toml" --data "$work/shards/0" "${more[@]}" --output "$work/nar" \
    --tokenizers-from "$work/ar"

marstts export "$work/ar" --nar "$work/nar" --codec encodec --name mars5 --output "$work/bundle"
