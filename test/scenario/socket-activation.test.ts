/**
 * Sockets inherited from the service manager: a real listening descriptor is handed to a real process, as systemd does.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startGatewayProcess } from "../support/gateway-process.ts";

/** The process id is known only to the process that becomes the gateway. */
const ACTIVATE = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh"];
const GATEWAY = join(process.cwd(), "dist", "gateway.js");

async function listening(): Promise<{ server: Server; port: number; fd: number }> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { fd } = (server as unknown as { _handle: { fd: number } })._handle;
  return { server, port: (server.address() as AddressInfo).port, fd };
}

function configFile(t: TestContext, yaml: string): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-sockets-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "config.yaml");
  writeFileSync(file, yaml);
  return file;
}

const config = (gateways: string): string =>
  `config: { adminAddr: "127.0.0.1:0" }\ngateways: { ${gateways} }\n` +
  "routes: [{ policies: { directResponse: { body: ok } } }]\n";

async function activated(t: TestContext, yaml: (port: number) => string, names: string) {
  const { server, port, fd } = await listening();
  const file = configFile(t, yaml(port));
  const gateway = startGatewayProcess(t, ["-f", file], {
    command: [...ACTIVATE, process.execPath, GATEWAY],
    env: { LISTEN_FDS: "1", LISTEN_FDNAMES: names },
    descriptors: [fd],
  });
  // The child has its own copy; ours would take connections away from it.
  server.close();
  return { gateway, port, file };
}

test("a listener uses the inherited socket of its port", async (t) => {
  const { gateway, port } = await activated(t, (port) => config(`default: { port: ${port} }`), "unknown");
  assert.equal(await gateway.port(), port);
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "ok");
  // Bound by itself it would listen on every interface; the inherited socket has loopback only.
  const everywhere = await fetch(`http://127.0.0.2:${port}/`).then(
    () => "answered",
    () => "refused",
  );
  assert.equal(everywhere, "refused");
  gateway.child.kill("SIGTERM");
  assert.equal((await gateway.exited).code, 0);
});

test("a listener uses the inherited socket of its name, whatever port it has", async (t) => {
  const { gateway, port } = await activated(t, () => config("default: { port: 80 }"), "default");
  assert.equal(await gateway.port(), port);
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "ok");
});

test("an inherited socket that no listener takes is named in the log", async (t) => {
  const { gateway, port } = await activated(t, () => config("default: { port: 0 }"), "spare");
  await gateway.logged(`inherited socket is not used fd=3 name=spare port=${port}`);
});

test("a reload that would close an inherited socket is rejected, and the socket goes on", async (t) => {
  const { gateway, port, file } = await activated(t, (port) => config(`default: { port: ${port} }`), "default");
  await gateway.port();
  writeFileSync(file, config(`default: { port: ${port}, address: 127.0.0.1 }`));
  await gateway.logged("needs a restart");
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "ok");
});
