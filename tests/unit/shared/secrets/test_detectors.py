"""Known forms of `detect-secrets`, and when it is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent.shared.secrets.finding import MASK, known_forms, mask_secrets

# Assembled, so that no scanner finds them in this file.
MIXED = "q7Rf2Zx9" + "Lm4Tb8Wn" + "C6Vy1KpD" + "h3Js5Gu0"
LOWER = "q7rf2zx9" + "lm4tb8wn" + "c6vy1kpd" + "h3js5gu0"
HEX = "9f86d081" + "884c7d65" + "9a2feaa0" + "c55ad015"

FORMS = {
    "artifactory": ('repo_key = "{}"', "AKC" + MIXED * 2),
    "aws-assumed": ("use {} here", "ABIA" + "Q3EGRIZX7M4WNPL2"),
    "aws-secret": ('aws.conf(key="{}", region="x")', (MIXED + MIXED)[:40]),
    "azure": (
        "x;AccountName=a;{};Endpoint=b",
        "AccountKey=" + MIXED * 2 + "+/" + MIXED[:20] + "==",
    ),
    "cloudant": ("https://me:{}@me.cloudant.com/db", HEX * 2),
    "discord": ("run({})", "M" + MIXED[:23] + "." + MIXED[:6] + "." + MIXED[:27]),
    "gitlab-runner": ("--token {} --x", "glrt-" + MIXED[:20]),
    "ibm-cos": ("cos_hmac_secret_access_key: {}, y", HEX + HEX[:16]),
    "mailchimp": ("key {} .", LOWER + "-us12"),
    "npm": ("//npm.example.invalid/:_authToken={}", "9f86d081-884c-7d65-9a2f-eaa0c55ad015"),
    "slack-webhook": (
        "post to {} now",
        "https://hooks.slack.com/services/" + "T024F" + "/B0X7Q/" + MIXED[:24],
    ),
    "square": ("id={}", "sq0csp-" + (MIXED * 2)[:43]),
    "telegram": ("bot({})", "110201543:" + (MIXED * 2)[:35]),
    "twilio": ("sid {} x", "AC" + LOWER),
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_known_forms_are_masked_and_nothing_beside_them(name: str) -> None:
    template, value = FORMS[name]
    text = f"before\n{template.format(value)}\nafter\n"
    masked = mask_secrets(text)
    assert masked.count == 1
    assert value not in masked.text
    assert masked.text == f"before\n{template.format(MASK)}\nafter\n"


@pytest.mark.parametrize(
    "line",
    [
        f"sha256 = '{HEX * 2}'",
        f"index {HEX[:10]}..{HEX[10:20]} 100644",
        f"DATA = b'{LOWER}{LOWER}'",
        "url = 'http://user:password@example.com/'",
        "BACKTRACE = 'AC' + 'x' * 32",
        "password = 'correct horse battery staple'",
        "host = '203.0.113.77'",
        f"name = 'x{FORMS['twilio'][1]}'",
    ],
)
def test_digests_placeholders_and_words_are_left_alone(line: str) -> None:
    assert list(known_forms(line)) == []


def test_the_library_is_imported_only_for_what_could_be_a_key() -> None:
    """A command that scans nothing does not import it: `agent --help` must stay fast."""
    code = (
        "import sys, agent.cli, agent.run.pipeline; "
        "from agent.shared.secrets.finding import mask_secrets; "
        "mask_secrets('def f(x):\\n    return x + 1\\n' * 100); "
        "print('detect_secrets' in sys.modules); "
        f"mask_secrets('x = \"{MIXED}\"'); print('detect_secrets' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["False", "True"]
