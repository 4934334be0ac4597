"""Files of docker-compose.yml."""
