/**
 * Finds and configures the programs that the gateway is compared with. An environment variable can name a binary that is
 * not in PATH, and missing programs are skipped. `serves` lists the workloads; nginx, HAProxy and Envoy forward chat
 * requests as plain HTTP. Each program has one worker thread. The limits on open connections allow 10,000 streams.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { nodeVersion } from "../support/node-version.mjs";
import { ECHO, gatewayConfig } from "../support/workloads.mjs";

const PLAIN = ["http", "llm"];
const here = dirname(fileURLToPath(import.meta.url));
const GATEWAY = join(here, "../../dist/gateway.js");
const RELAY = join(here, "../http/bare-relay.mjs");

/** `configure` returns the configuration's text, `args` the command line for its file. */
export const PROGRAMS = [
  {
    name: "nginx",
    variable: "BENCH_NGINX",
    version: "-v",
    serves: PLAIN,
    configure: ({ port, backendPort, folder }) => `
daemon off; master_process off; worker_processes 1; pid ${folder}/nginx.pid; error_log /dev/null;
events { worker_connections 30000; }
http { access_log off; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
fastcgi_temp_path ${folder}/f; uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
upstream backend { server 127.0.0.1:${backendPort}; keepalive 64; }
server { listen 127.0.0.1:${port}; location / {
  proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header connection ""; proxy_buffering off; } } }
`,
    args: (file, { folder }) => ["-c", file, "-p", folder],
  },
  {
    name: "haproxy",
    variable: "BENCH_HAPROXY",
    version: "-v",
    serves: PLAIN,
    // Without `http-no-delay`, a chunk waits up to 200 ms for the next one.
    configure: ({ port, backendPort }) => `
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
  option http-no-delay
  http-reuse always
frontend in
  bind 127.0.0.1:${port}
  default_backend out
backend out
  server one 127.0.0.1:${backendPort}
`,
    args: (file) => ["-db", "-f", file],
  },
  {
    name: "envoy",
    variable: "BENCH_ENVOY",
    version: "--version",
    serves: PLAIN,
    configure: envoyConfig,
    args: (file) => ["-c", file, "--concurrency", "1", "-l", "off", "--base-id", String(process.pid % 30_000)],
  },
  {
    name: "agentgateway",
    variable: "BENCH_AGENTGATEWAY",
    version: "--version",
    serves: ["http", "llm", "mcp"],
    environment: { WORKER_THREADS: "1", RUST_LOG: "error" },
    configure: agentgatewayConfig,
    args: (file) => ["-f", file],
  },
];

/** Programs without a JIT compiler need only full caches and open connections. */
const NATIVE_WARM_UP = 0.1;

/** The programs that are here, with the command of each. */
export function present() {
  return PROGRAMS.flatMap((program) => {
    const command = process.env[program.variable] ?? program.name;
    const { status, stdout, stderr } = spawnSync(command, [program.version], { encoding: "utf8" });
    if (status === 0) {
      const [release] = /\d+\.\d+(\.\d+)?/.exec(`${stdout} ${stderr}`) ?? ["of unknown version"];
      const build = process.env[`${program.variable}_BUILD`];
      return [{ ...program, command, release, build, warmUpShare: NATIVE_WARM_UP }];
    }
    console.log(`${program.name} is not here (${program.variable} names its binary): its rows are missing`);
    return [];
  });
}

/**
 * The gateway with this Node.js and those that BENCH_NODES lists, separated by colons. An entry can have flags:
 * BENCH_NODES="node --max-semi-space-size=64".
 */
export function gateways() {
  return nodes().map(({ command, flags, version }) => ({
    name: ["gateway, Node", version.split(".")[0], ...flags].join(" "),
    kind: "gateway",
    command,
    release: ["this build, Node", version, ...flags].join(" "),
    serves: ["http", "llm", "mcp"],
    configure: ({ of, port, backendPort }) => gatewayConfig(of, port, backendPort),
    args: (file) => [...flags, GATEWAY, "-f", file],
  }));
}

function nodes() {
  const listed = (process.env.BENCH_NODES ?? "").split(":").filter((path) => path !== "");
  return [process.execPath, ...listed].map((node) => {
    const [command, ...flags] = node.split(" ");
    return { command, flags, version: nodeVersion(command) };
  });
}

/**
 * Minimal programs that show the least that Node.js can do, on the same versions as the gateway: a relay of bytes, or
 * the program that a row of `work` names.
 */
export function bareNodes() {
  return nodes().map(({ command, flags, version }) => ({
    name: ["bare Node", version.split(".")[0], ...flags].join(" "),
    kind: "bare",
    command,
    release: ["minimal program of each row, Node", version, ...flags].join(" "),
    serves: PLAIN,
    configure: ({ port, backendPort }) => bareProgram(RELAY, port, backendPort),
    args: (file) => [...flags, ...JSON.parse(readFileSync(file, "utf8"))],
  }));
}

/** The configuration of a minimal program is its command line. */
export function bareProgram(script, ...args) {
  return JSON.stringify([script, ...args.map(String)]);
}

/**
 * One more, of which the bench knows nothing: BENCH_OTHER="command {port} {backend}" is started for each kind of work in
 * BENCH_OTHER_SERVES (`http` if not set); `{backend}` is the port behind it.
 */
export function other() {
  const line = process.env.BENCH_OTHER;
  if (line === undefined) return [];
  const [command, ...words] = line.split(" ");
  return [
    {
      name: process.env.BENCH_OTHER_NAME ?? command,
      command,
      serves: (process.env.BENCH_OTHER_SERVES ?? "http").split(","),
      configure: () => "",
      args: (_file, { port, backendPort }) =>
        words.map((word) => word.replaceAll("{port}", port).replaceAll("{backend}", backendPort)),
    },
  ];
}

function envoyConfig({ port, backendPort }) {
  const address = (number) => ({ socket_address: { address: "127.0.0.1", port_value: number } });
  const manager = {
    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    stat_prefix: "in",
    generate_request_id: false,
    route_config: {
      virtual_hosts: [
        { name: "all", domains: ["*"], routes: [{ match: { prefix: "/" }, route: { cluster: "out", timeout: "0s" } }] },
      ],
    },
    http_filters: [
      {
        name: "router",
        typed_config: { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
      },
    ],
  };
  const filter = { name: "http", typed_config: manager };
  const endpoint = { endpoint: { address: address(backendPort) } };
  return JSON.stringify({
    static_resources: {
      listeners: [{ name: "in", address: address(port), filter_chains: [{ filters: [filter] }] }],
      clusters: [
        {
          name: "out",
          type: "STATIC",
          connect_timeout: "5s",
          circuit_breakers: {
            thresholds: [{ max_connections: 30_000, max_requests: 30_000, max_pending_requests: 30_000 }],
          },
          load_assignment: { cluster_name: "out", endpoints: [{ lb_endpoints: [endpoint] }] },
        },
      ],
    },
  });
}

function agentgatewayConfig({ of, port, backendPort }) {
  const backend = {
    http: { host: `127.0.0.1:${backendPort}` },
    llm: { ai: { name: "openai", provider: { openAI: {} }, hostOverride: `127.0.0.1:${backendPort}` } },
    mcp: { mcp: { targets: [{ name: "echo", stdio: { cmd: ECHO[0], args: ECHO.slice(1) } }] } },
  }[of];
  const policies = of === "llm" ? { backendAuth: { key: "k" } } : {};
  return JSON.stringify({
    config: { adminAddr: "127.0.0.1:0", statsAddr: "127.0.0.1:0", readinessAddr: "127.0.0.1:0" },
    binds: [{ port, listeners: [{ routes: [{ policies, backends: [backend] }] }] }],
  });
}
