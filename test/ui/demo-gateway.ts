/**
 * A gateway with something on every page: a demo MCP server, a demo model with a small token budget, plain routes, a
 * route that refuses, and names made of markup and control characters.
 */
import { startGateway, type TestGateway, type TestGatewayOptions } from "../support/gateway.ts";

/** As a name in YAML, and as it arrives. */
export const EVIL_YAML = '"<img src=x onerror=document.title=1>\\u202e\\u0007"';
export const EVIL_SHOWN = "<img src=x onerror=document.title=1>\\u202e\\u0007";
export const SECRET = "secret-that-must-not-be-shown";

export function demoConfig(extra = ""): string {
  return `# Kept: a comment at the top.
config:
  adminAddr: 127.0.0.1:0
  logging: { level: "info,access=off" }
  tracing: { keepFailed: { maxBytes: 1000000 } }
${extra}gateways:
  default: { port: 0, address: 127.0.0.1 }
  llm: { port: 0, address: 127.0.0.1 }
routes:
  - name: tools # Kept: beside a value.
    gateways: default
    backends:
      - mcp:
          targets:
            - name: demo
              stdio: { cmd: node, args: [demo-server.mjs], cwd: . }
  - name: chat
    gateways: llm
    policies:
      requestHeaderModifier: { set: { x-added: "yes" } }
      rateLimit:
        local: [{ tokens: 150, unit: Hours }]
    backends:
      - ai: { name: demo, provider: { demo: {} } }
  - name: hello
    gateways: default
    matches: [{ path: { pathPrefix: /hello } }]
    policies:
      requestHeaderModifier: { set: { authorization: "Bearer ${SECRET}", x-secret: "1" } }
      directResponse: { status: 200, body: hello }
  - name: closed
    gateways: default
    matches: [{ path: { pathPrefix: /closed } }]
    policies:
      authorization: { rules: ['request.headers["x-role"] == "admin"'] }
      directResponse: { status: 200, body: open }
  - name: ${EVIL_YAML}
    gateways: default
    matches: [{ path: { pathPrefix: /evil } }]
    policies:
      directResponse: { status: 418, body: teapot }
ui:
  gateways: default
`;
}

export function startDemo(extra = "", options: TestGatewayOptions = {}): Promise<TestGateway> {
  // A file of its own beside the configuration, as a user would have it; it loads the compiled demo server.
  const demoServer = `import ${JSON.stringify(new URL("../../src/demo/mcp-server.js", import.meta.url).href)};\n`;
  return startGateway(demoConfig(extra), {
    environment: { PATH: process.env.PATH ?? "" },
    files: { "demo-server.mjs": demoServer },
    ...options,
  });
}

/** Some of everything, so that no page is empty. */
export async function sendTraffic(gateway: TestGateway): Promise<void> {
  const url = gateway.url("default");
  for (const path of ["/hello", "/hello/world?x=1", "/closed", "/evil/%3Cscript%3E", "/nowhere"])
    await drain(fetch(url + path));
  await ask(gateway, "Hello!");
}

export async function ask(gateway: TestGateway, content: string, headers: Record<string, string> = {}): Promise<void> {
  await drain(
    fetch(`${gateway.url("llm")}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ model: "demo", messages: [{ role: "user", content }] }),
    }),
  );
}

async function drain(answer: Promise<Response>): Promise<void> {
  await (await answer).arrayBuffer();
}
