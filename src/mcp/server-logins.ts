/**
 * The logins of users at the servers of an MCP backend that want some, with the vault that holds their tokens. Refused at
 * load: a route where users are not identified, and a vault without a key.
 */
import { createHash } from "node:crypto";
import type { BackendEnv } from "../core/backend.ts";
import { storeNamespace } from "../store/store.ts";
import { confinedFetch } from "./logins/oauth-client.ts";
import { LoginRegistry, ServerLogin } from "./logins/server-login.ts";
import { Vault } from "./logins/vault.ts";
import type { McpConfig } from "./server-side/target-config.ts";

const MIN_KEY_CHARS = 32;

/** By the names of targets. Throws an Error that says what is missing. */
export function serverLogins(config: McpConfig, env: BackendEnv): ReadonlyMap<string, ServerLogin> {
  const logins = new Map<string, ServerLogin>();
  const targets = config.targets.filter(({ mcp }) => mcp?.oauth !== undefined);
  if (targets.length === 0) return logins;
  if (!env.requiresCredential)
    throw new Error("`oauth` keeps tokens per user: the route needs an authentication policy that lets nobody else in");
  const key = vaultKey(config, env);
  const registry = env.acquire("mcp logins", "all", () => new LoginRegistry());
  for (const { name, mcp } of targets) {
    if (mcp?.oauth === undefined) continue;
    const { url, oauth } = mcp;
    const id = `${env.name}/${name}`;
    const definition = createHash("sha256")
      .update(JSON.stringify([url, oauth, key]))
      .digest("hex");
    const kept = env.acquire(
      `mcp login ${id}`,
      definition,
      () => {
        const vault = new Vault(storeNamespace(env.store, "mcp-vault"), key);
        const logger = env.logger.for("mcp");
        const fetch = oauth.issuer === undefined ? confinedFetch(url, env.fetch) : env.fetch;
        const parts = { clock: env.clock, fetch, logger, vault };
        return { login: new ServerLogin(id, name, url, oauth, parts), vault };
      },
      ({ login }) => registry.remove(login),
    );
    env.serving(() => registry.add(kept.login, kept.vault));
    logins.set(name, kept.login);
  }
  return logins;
}

function vaultKey({ vaultKey: given, vaultKeyFile }: McpConfig, env: BackendEnv): string {
  const key = given ?? (vaultKeyFile === undefined ? undefined : env.readFile(vaultKeyFile).trim());
  if (key === undefined) throw new Error("`oauth` needs a key for the users' tokens: set `vaultKey` or `vaultKeyFile`");
  if (key.length < MIN_KEY_CHARS)
    throw new Error(`the key in \`vaultKeyFile\` has fewer than ${MIN_KEY_CHARS} characters`);
  return key;
}
