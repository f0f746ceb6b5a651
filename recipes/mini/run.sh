#!/usr/bin/env bash
# How mini is made, start to end; every step goes on where it stopped.
# Usage: recipes/mini/run.sh WORK_FOLDER     (about 5 hours on two cores; Debian packages: flite, and from contrib and
# non-free rhvoice-english and libttspico-utils; pip install 'marstts[train,studio,eval]')
#
# The weights inside the package went this way with detours: the first stage of the codec, and the identity encoder, heard an
# earlier and smaller corpus; the codec's second stage was walked twice, first without pitch, its third before the last
# walk of its second; MARS6 began with weights that had learnt from former codes. docs/log.md tells all.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?where should the corpus and the runs go?}
cores=$(nproc)  # before the next line, which nproc would believe
export OMP_NUM_THREADS=1

marstts prepare studio --config "$here/studio.toml" --output "$work/studio" --workers "$cores" \
    --sentences "$here/text/english.txt.gz:0.2" --sentences "$here/text/modern.tsv.gz:0.72" \
    --sentences "$here/text/short.tsv.gz:0.08"
manifest=$work/studio/utterances.jsonl

marstts prepare pitch "$manifest" --hours 8 --workers "$cores"
marstts train codec --config "$here/codec.toml" --data "$manifest" --output "$work/codec"
marstts prepare phones "$manifest" --hours 4 --workers "$cores"
marstts train codec --config "$here/codec_phones.toml" --data "$manifest" --output "$work/codec_phones" \
    --from "$work/codec"
marstts train codec --config "$here/codec_decoder.toml" --data "$manifest" --output "$work/codec_decoder" \
    --from "$work/codec_phones" --export "$work/export/codec" --name mini-codec-3
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
    --data "$work/shards" --from "$work/mars6" --output "$work/mars6_guidance"

marstts export "$work/mars6_guidance" --codec "$work/export/codec" --identity "$work/export/identity" \
    --style "$work/export/style" --name mini --output "$work/mini"
marstts evaluate --system "$work/mini" --root "$work/studio" --output "$work/evaluation" --workers "$cores"
