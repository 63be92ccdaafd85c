"""The backend that runs commands in containers of podman or docker."""
