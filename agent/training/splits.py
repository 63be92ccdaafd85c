"""Which projects train what.

A ranker that weighs an encoder's opinion must learn from projects that the encoder has not seen: on
those it has seen, the encoder looks better than it is.
"""

from __future__ import annotations

RANKER_PROJECTS = frozenset(
    {
        "AntonOsika/gpt-engineer",
        "OpenInterpreter/open-interpreter",
        "Z4nzu/hackingtool",
        "ageitgey/face_recognition",
        "ansible/ansible",
        "binary-husky/gpt_academic",
        "comfyanonymous/ComfyUI",
        "deepfakes/faceswap",
        "fastapi/fastapi",
        "geekan/MetaGPT",
        "hacksider/Deep-Live-Cam",
        "hiyouga/LLaMA-Factory",
        "home-assistant/core",
        "huggingface/transformers",
        "localstack/localstack",
        "meta-llama/llama",
        "odoo/odoo",
        "pandas-dev/pandas",
        "pytorch/pytorch",
        "sherlock-project/sherlock",
        "xtekky/gpt4free",
        "yt-dlp/yt-dlp",
        "ytdl-org/youtube-dl",
    }
)
"""The projects of the development issues that are there to tune on."""
