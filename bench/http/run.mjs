/**
 * Benchmarks HTTP proxying: direct, nginx (if installed), a minimal Node.js proxy, and the gateway with and without
 * its access log. The rows are GET, POST of 1 KB and 20 KB, a stream of 100 chunks, and the memory for one gigabyte.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compare } from "../support/compare.mjs";
import { httpRequest, sendLoad } from "../support/load.mjs";
import { freePort, start } from "../support/process.mjs";
import { largeBodies } from "./large-bodies.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");

export async function benchHttp({ quick = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  const running = [];
  try {
    const backendPort = await freePort();
    const backend = await start(process.execPath, [join(here, "backend.mjs"), String(backendPort)], backendPort);
    running.push(backend);
    const contestants = [{ name: "direct (the backend itself)", ...backend }];
    const add = async (name, command, args, port, options) => {
      const started = await start(command, args, port, options);
      running.push(started);
      contestants.push({ name, ...started });
    };

    const nginx = spawnSync("nginx", ["-v"]).status === 0;
    if (nginx) {
      const port = await freePort();
      writeFileSync(join(folder, "nginx.conf"), nginxConfig(port, backendPort, folder));
      await add("nginx", "nginx", ["-c", join(folder, "nginx.conf"), "-p", folder], port);
    } else console.log("nginx is not installed: its row is missing");

    const barePort = await freePort();
    await add(
      "bare node proxy",
      process.execPath,
      [join(here, "bare-proxy.mjs"), String(barePort), String(backendPort)],
      barePort,
    );
    for (const [name, level] of [
      ["gateway, access log off", "info,access=off"],
      ["gateway, access log on", "info"],
    ]) {
      const port = await freePort();
      const file = join(folder, `${level.length}.yaml`);
      writeFileSync(file, gatewayConfig(port, backendPort, level));
      await add(name, process.execPath, [join(root, "dist/gateway.js"), "-f", file], port);
    }
    // Another build of the gateway in the same run: BENCH_AGAINST=/path/to/dist/gateway.js
    const other = process.env.BENCH_AGAINST;
    if (other !== undefined) {
      const port = await freePort();
      const file = join(folder, "other.yaml");
      writeFileSync(file, gatewayConfig(port, backendPort, "info,access=off"));
      await add("other gateway, access log off", process.execPath, [other, "-f", file], port);
    }

    const run =
      (request, connections) =>
      ({ port }, count) =>
        sendLoad({ port, request, count, connections });
    const warmUp = quick ? 4000 : 10_000;
    const rounds = quick ? 3 : 5;
    const results = {};
    const workloads = [
      ["GET, 320 B answer", httpRequest({ headers: bearer }), 32, 3000, warmUp],
      ["POST 1 KB", httpRequest({ method: "POST", body: "a".repeat(1024), headers: bearer }), 32, 3000, warmUp],
      ["POST 20 KB", httpRequest({ method: "POST", body: "a".repeat(20 * 1024), headers: bearer }), 32, 2000, warmUp],
      ["stream of 100 chunks, 60 at once", httpRequest({ path: "/stream", headers: bearer }), 60, 180, 360],
    ];
    for (const [title, request, connections, perRound, warm] of workloads) {
      results[title] = await compare({
        title,
        contestants,
        warmUp: warm,
        rounds,
        perRound,
        run: run(request, connections),
        baseline: "bare node proxy",
      });
    }
    const gateways = contestants.filter(({ name }) => name.startsWith("gateway"));
    await largeBodies(gateways, (quick ? 200 : 1024) * 1024 * 1024);
    return results;
  } finally {
    for (const one of running) await one.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A bearer token of ordinary size is part of most requests that pass a gateway. */
const bearer = { authorization: `Bearer ${"b".repeat(600)}` };

function gatewayConfig(port, backendPort, level) {
  return `config: { adminAddr: off, logging: { level: "${level}" } }
gateways: { default: { port: ${port}, address: 127.0.0.1 } }
routes: [{ backends: [{ host: "127.0.0.1:${backendPort}" }] }]
`;
}

function nginxConfig(port, backendPort, folder) {
  return `daemon off; master_process off; worker_processes 1; pid ${folder}/nginx.pid; error_log /dev/null;
events { worker_connections 1024; }
http { access_log off; client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
fastcgi_temp_path ${folder}/f; uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
upstream backend { server 127.0.0.1:${backendPort}; keepalive 64; }
server { listen 127.0.0.1:${port}; location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header connection ""; proxy_buffering off; } } }
`;
}
