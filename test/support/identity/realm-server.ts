/**
 * Runs Keycloak with an empty in-memory database on a free loopback port. Tests that need it are skipped unless
 * REALM_HOME names the folder of an unpacked distribution; `npm run test:realm` fetches one.
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import type { Socket } from "node:net";
import { join } from "node:path";
import { freePort } from "../free-port.ts";

const ADMIN = { username: "admin", password: "admin-password" };
const home = process.env.REALM_HOME ?? "";

/** For the options of a test. */
export const skipWithoutRealmServer: string | false =
  !existsSync(join(home, "bin", "kc.sh")) && "REALM_HOME does not name a Keycloak distribution (npm run test:realm)";

export interface RealmServer {
  readonly url: string;
  readonly adminPassword: string;
  /** Imports a realm, with its clients and users. */
  createRealm(realm: object): Promise<void>;
  /** Calls the admin API below `/admin/realms`. */
  admin(method: string, path: string, body?: unknown): Promise<unknown>;
  close(): Promise<void>;
}

export async function startRealmServer(folder: string = home): Promise<RealmServer> {
  const port = await freePort();
  const args = ["start-dev", "--http-host", "127.0.0.1", "--http-port", String(port), "--db", "dev-mem"];
  const server = spawn(join(folder, "bin", "kc.sh"), args, {
    // A process group of its own, because the script starts another process.
    detached: true,
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      ...process.env,
      KC_BOOTSTRAP_ADMIN_USERNAME: ADMIN.username,
      KC_BOOTSTRAP_ADMIN_PASSWORD: ADMIN.password,
      JAVA_OPTS_APPEND: "-Xmx512m",
    },
  });
  const ended = new Promise((resolve) => server.once("exit", resolve));
  await new Promise<void>((resolve, reject) => {
    let text = "";
    server.stdout.on("data", (chunk: Buffer) => {
      text = (text + chunk.toString()).slice(-10_000);
      if (text.includes("Listening on: ")) resolve();
    });
    server.once("error", reject);
    server.once("exit", () => reject(new Error(`Keycloak ended: ${text}`)));
  });
  // The server does not keep this process alive, and ends with it, also if a test fails before it closes the server.
  const end = (): void => {
    if (server.exitCode === null && server.signalCode === null && server.pid !== undefined)
      process.kill(-server.pid, "SIGKILL");
  };
  process.once("exit", end);
  server.unref();
  (server.stdout as Socket).unref();
  const url = `http://127.0.0.1:${port}`;

  const admin = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const form = { grant_type: "password", client_id: "admin-cli", ...ADMIN };
    const { access_token: token } = await requestToken(`${url}/realms/master`, form);
    const response = await fetch(`${url}/admin/realms${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: status ${response.status}: ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  };

  return {
    url,
    adminPassword: ADMIN.password,
    admin,
    createRealm: async (realm) => void (await admin("POST", "", realm)),
    async close() {
      process.off("exit", end);
      server.ref();
      end();
      await ended;
    },
  };
}

/** A token request to a realm, for tests that need the token of a user or client. */
export async function requestToken(
  realm: string,
  form: Readonly<Record<string, string>>,
): Promise<{ readonly access_token: string }> {
  const body = new URLSearchParams(form);
  const response = await fetch(`${realm}/protocol/openid-connect/token`, { method: "POST", body });
  if (!response.ok) throw new Error(`no token: status ${response.status}: ${await response.text()}`);
  return (await response.json()) as { access_token: string };
}
