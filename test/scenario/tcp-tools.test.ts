/**
 * Connection routes and the PROXY protocol with other programs: openssl and curl as clients, and haproxy as the load
 * balancer in front of the gateway and as the server behind it.
 */
import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { backendFor, eventually, gatewayFor } from "../support/scenario.ts";
import { certificates } from "../support/tls/certificates.ts";

const skipWithout = (program: string, argument: string): string | false =>
  spawnSync(program, [argument]).status === 0 ? false : `${program} is not installed`;
const withoutOpenssl = skipWithout("openssl", "version");
const withoutCurl = skipWithout("curl", "--version");
const withoutHaproxy = skipWithout("haproxy", "-v");
const TRUSTED = "config: { trustedProxies: [127.0.0.1] }\n";

function run(program: string, args: readonly string[], input = ""): Promise<string> {
  return new Promise((resolve) => {
    const child = execFile(program, args, { timeout: 30_000 }, (_error, stdout) => resolve(stdout));
    child.stdin?.end(input);
  });
}

async function httpsServer(t: TestContext, text: string): Promise<string> {
  const server = createHttpsServer(certificates.server, (_request, response) => response.end(text));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Runs haproxy with a listening socket as descriptor 3, so that no port must be chosen. Returns the port. */
async function haproxy(t: TestContext, configuration: string): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), "gateway-haproxy-"));
  const file = join(folder, "haproxy.cfg");
  writeFileSync(
    file,
    `global\n  maxconn 20\ndefaults\n  timeout connect 20s\n  timeout client 20s\n  timeout server 20s\n${configuration}`,
  );
  const listening: Server = createServer();
  await new Promise<void>((resolve) => listening.listen(0, "127.0.0.1", resolve));
  const { port } = listening.address() as AddressInfo;
  const { fd } = (listening as unknown as { _handle: { fd: number } })._handle;
  const child: ChildProcess = spawn("haproxy", ["-db", "-f", file], { stdio: ["ignore", "ignore", "ignore", fd] });
  const ended = new Promise((resolve) => child.once("close", resolve));
  // Only haproxy accepts connections from here on.
  listening.close();
  t.after(async () => {
    child.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  });
  return port;
}

test("curl and openssl reach servers by their names, without a certificate of the gateway", {
  skip: withoutCurl || withoutOpenssl,
}, async (t) => {
  const [one, two] = [await httpsServer(t, "one"), await httpsServer(t, "two")];
  const gateway = await gatewayFor(
    t,
    `gateways: { secure: { port: 0, protocol: TLS } }
tcpRoutes:
  - { hostnames: [backend.test], backends: [{ host: "${one}" }] }
  - { hostnames: [localhost], backends: [{ host: "${two}" }] }
`,
    { files: { "ca.pem": certificates.root } },
  );
  const ca = join(gateway.folder, "ca.pem");
  const port = gateway.port();
  const connectTo = `::127.0.0.1:${port}`;
  const get = (name: string) => run("curl", ["-s", "--cacert", ca, "--connect-to", connectTo, `https://${name}/`]);
  assert.equal(await get("backend.test"), "one");
  assert.equal(await get("localhost"), "two");
  assert.equal(await get("other.test"), "");
  const shown = (name: string) =>
    run(
      "openssl",
      ["s_client", "-connect", `127.0.0.1:${port}`, "-servername", name, "-CAfile", ca, "-quiet", "-ign_eof"],
      `GET / HTTP/1.0\r\nHost: ${name}\r\n\r\n`,
    );
  assert.match(await shown("localhost"), /\r\n\r\ntwo$/);
  assert.equal(await shown("other.test"), "");
});

test("curl sends a PROXY protocol header", { skip: withoutCurl }, async (t) => {
  const backend = await backendFor(t, (request, response) => response.end(String(request.headers["x-forwarded-for"])));
  const gateway = await gatewayFor(
    t,
    `${TRUSTED}gateways: { a: { port: 0, proxyProtocol: {} } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
  );
  assert.equal(await run("curl", ["-s", "--haproxy-protocol", gateway.url()]), "127.0.0.1, 127.0.0.1");
  assert.equal(await run("curl", ["-s", gateway.url()]), "");
});

for (const [version, option] of [
  ["v1", "send-proxy"],
  ["v2", "send-proxy-v2"],
] as const) {
  test(`haproxy in front of the gateway sends the client's address (${version})`, {
    skip: withoutHaproxy,
  }, async (t) => {
    const backend = await backendFor(t, (request, response) => response.end(String(request.headers["x-client"])));
    const gateway = await gatewayFor(
      t,
      `${TRUSTED}gateways: { a: { port: 0, proxyProtocol: { version: ${version} } } }
routes:
  - policies: { transformations: { request: { set: { x-client: client.address } } } }
    backends: [{ host: "${backend.host}" }]
`,
    );
    const port = await haproxy(
      t,
      `listen front\n  mode tcp\n  bind fd@3\n  source 127.0.0.1\n  server gateway 127.0.0.1:${gateway.port()} ${option}\n`,
    );
    let text = "";
    await eventually("haproxy forwards requests", async () => {
      text = await fetch(`http://127.0.0.1:${port}`).then(
        (response) => response.text(),
        () => "",
      );
      return text !== "";
    });
    assert.equal(text, "127.0.0.1");
  });
}

test("haproxy behind the gateway reads the client's address", { skip: withoutHaproxy || withoutCurl }, async (t) => {
  const port = await haproxy(
    t,
    `frontend back\n  mode http\n  bind fd@3 accept-proxy\n  http-request return status 200 content-type text/plain lf-string "%[src] %[dst_port]"\n`,
  );
  const gateway = await gatewayFor(
    t,
    `${TRUSTED}gateways: { a: { port: 0, protocol: TCP, proxyProtocol: { mode: optional } } }
tcpRoutes: [{ backends: [{ host: "127.0.0.1:${port}", proxyProtocol: v2 }] }]
`,
  );
  let text = "";
  await eventually("haproxy responds", async () => {
    text = await run("curl", ["-s", "--haproxy-protocol", gateway.url()]);
    return text !== "";
  });
  assert.equal(text, `127.0.0.1 ${gateway.port()}`);
});
