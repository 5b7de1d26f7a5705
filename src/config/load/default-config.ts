/**
 * Provides the embedded configuration, used without `-f`. It listens on loopback only and needs no network or key.
 */

export interface DemoProgram {
  readonly command: string;
  readonly args: readonly string[];
}

/** With a folder, the demo also records its requests in a history database there. */
export function defaultConfig({ command, args }: DemoProgram, historyFolder?: string): string {
  const history = historyFolder === undefined ? "" : `  history: { folder: ${JSON.stringify(historyFolder)} }\n`;
  return `# The embedded default: loopback only, no network needed.
config:
  adminAddr: localhost:\${ADMIN_PORT:-15000}
${history}gateways:
  default:
    port: \${PORT:-3000}
    address: 127.0.0.1
  llm:
    port: \${LLM_PORT:-4000}
    address: 127.0.0.1
routes:
  # Any MCP client: http://localhost:3000/mcp
  - name: demo-mcp
    gateways: default
    backends:
      - mcp:
          targets:
            - name: demo
              stdio: { cmd: ${JSON.stringify(command)}, args: ${JSON.stringify(args)} }
  # Any OpenAI or Anthropic client: http://localhost:4000/v1
  - name: demo-llm-help
    gateways: llm
    # For users who open the address in a browser.
    matches:
      - { path: { exact: / }, method: GET }
      - { path: { exact: /v1 }, method: GET }
    policies:
      directResponse:
        body: |
          A demo LLM answers here: POST JSON to /v1/chat/completions, /v1/messages or /v1/responses,
          for example {"model":"demo","messages":[{"role":"user","content":"Hello!"}]}.
  - name: demo-llm
    gateways: llm
    policies:
      rateLimit:
        local:
          - tokens: 2000
            unit: Minutes
    backends:
      - ai:
          name: demo
          provider: { demo: {} }
ui:
  gateways: default
`;
}

/** The position of a problem is useless for the embedded configuration. */
const PLACE = /^<default>:\d+:\d+: /;
const LISTENER = /^gateways\.(default|llm)\.port: cannot listen on /;
const ADMIN = /^config\.adminAddr: cannot listen on /;

export function defaultListenHint(line: string): string {
  const message = line.replace(PLACE, "");
  const [, name] = LISTENER.exec(message) ?? [];
  if (name !== undefined)
    return `${message} (the environment variable ${name === "llm" ? "LLM_PORT" : "PORT"} moves this port)`;
  return ADMIN.test(message) ? `${message} (the environment variable ADMIN_PORT moves this port)` : line;
}
