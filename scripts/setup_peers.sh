#!/usr/bin/env bash
# What benchmarks/peers.py compares with: OpenVINO GenAI in an environment of its own, and the demo model in f32, once as
# a Hugging Face directory and once as OpenVINO's intermediate representation. Each part is made once; the environment
# with torch, which only the export needs (1.5 GB and more), is removed when the export has been made.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
models=.models/peers
genai=.venv-peers-genai
export_venv=build/peers-export-venv

environment() {
    local venv=$1 lock=$2
    if ! cmp --silent "$lock" "$venv/.chairlift-peers"; then
        echo "peers: $venv from $lock"
        "$PYTHON" -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$lock"
        cp "$lock" "$venv/.chairlift-peers"
    fi
}

mkdir -p "$models" build
"$PYTHON" scripts/make_f32_model.py "$models/hf-f32"
environment "$genai" requirements/peers-genai.lock
if [ ! -f "$models/ov-f32/openvino_model.xml" ]; then
    environment "$export_venv" requirements/peers-export.lock
    # Not needed here, and a build of it for GPUs beside a torch for CPUs keeps transformers from being imported.
    "$export_venv/bin/python" -m pip uninstall --quiet --yes torchvision
    rm -rf "$models/ov-f32.part"
    echo "peers: exporting $models/ov-f32 (540 MB; the log is build/peers-export.log)"
    if ! HF_HUB_OFFLINE=1 "$export_venv/bin/optimum-cli" export openvino --model "$models/hf-f32" \
        --task text-generation-with-past --weight-format fp32 "$models/ov-f32.part" >build/peers-export.log 2>&1; then
        tail -n 5 build/peers-export.log >&2
        exit 2
    fi
    mv "$models/ov-f32.part" "$models/ov-f32"
    rm -rf "$export_venv"
fi
