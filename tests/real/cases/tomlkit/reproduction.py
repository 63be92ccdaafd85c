import tomlkit

SPLIT_TABLE = """\
[server.limits.memory]
max = 10

[server.limits]
enabled = true

[client]
name = "x"

[server]
port = 1
"""


def test_key_of_a_split_table_can_be_deleted():
    document = tomlkit.parse(SPLIT_TABLE)
    del document["server"]["limits"]
    assert "limits" not in document["server"]
    assert tomlkit.parse(document.as_string()).unwrap() == {
        "client": {"name": "x"},
        "server": {"port": 1},
    }
