#!/usr/bin/env bash
# All stages of mini. An interrupted run resumes.
# Usage: recipes/mini/run.sh WORK_FOLDER     (about 5 hours on two cores)
#
#   apt-get install espeak-ng flite rhvoice rhvoice-english libttspico-utils    (the last three are in Debian's non-free)
#   pip install 'marstts[train,synthetic,eval]'
#
# Variables: LIMIT trials of the evaluation (all 56); METRICS of the evaluation (default).
#
# The packaged weights were made this way with detours, which docs/log describes. The first stage of the codec and the
# identity encoder were trained on an earlier, smaller corpus. The second stage of the codec ran twice, first without F0.
# MARS6 began with weights that were trained on former codes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: recipes/mini/run.sh WORK_FOLDER}
cores=$(nproc)  # before the next line, which nproc would obey
export OMP_NUM_THREADS=1

marstts prepare synthetic --config "$here/synthetic.toml" --output "$work/synthetic" --workers "$cores" \
    --sentences "$here/text/english.txt.gz:0.2" --sentences "$here/text/modern.tsv.gz:0.72" \
    --sentences "$here/text/short.tsv.gz:0.08"
manifest=$work/synthetic/utterances.jsonl

marstts prepare f0 "$manifest" --hours 8 --workers "$cores"
marstts train codec --config "$here/codec.toml" --data "$manifest" --output "$work/codec"
marstts prepare phone-alignments "$manifest" --hours 4 --workers "$cores"
marstts train codec --config "$here/codec_phones.toml" --data "$manifest" --output "$work/codec_phones" \
    --init-from "$work/codec"
marstts train codec --config "$here/codec_decoder.toml" --data "$manifest" --output "$work/codec_decoder" \
    --init-from "$work/codec_phones" --export "$work/export/codec" --name mini-codec-3
marstts train speaker --config "$here/identity.toml" --data "$manifest" --output "$work/identity" \
    --export "$work/export/identity"
marstts train speaker --config "$here/style.toml" --data "$manifest" --output "$work/style" \
    --export "$work/export/style"

marstts tokenize "$manifest" --output "$work/shards" --workers "$cores" \
    --codec "$work/export/codec" --identity "$work/export/identity" --style "$work/export/style"

# one process per core; drop torchrun to train in a single process
torchrun --nproc-per-node "$cores" --no-python marstts train mars6 --config "$here/mars6.toml" \
    --data "$work/shards" --output "$work/mars6"
torchrun --nproc-per-node "$cores" --no-python marstts train mars6 --config "$here/mars6_guidance.toml" \
    --data "$work/shards" --init-from "$work/mars6" --output "$work/mars6_guidance"

marstts export "$work/mars6_guidance" --codec "$work/export/codec" --identity "$work/export/identity" \
    --style "$work/export/style" --name mini --spelling simple --output "$work/mini"
marstts evaluate --system "$work/mini" --root "$work/synthetic" --output "$work/evaluation" --workers "$cores" \
    --metrics "${METRICS:-default}" ${LIMIT:+--limit "$LIMIT"}
