#!/bin/sh
# The smallest MCP server: it starts in a millisecond, answers initialize, and is silent about everything else.
while IFS= read -r line; do
  case "$line" in
    *'"method":"initialize"'*)
      echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"mini","version":"1"}}}'
      ;;
  esac
done
