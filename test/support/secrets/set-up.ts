/**
 * A gateway with a secret in every possible field, in front of HTTP, LLM and MCP servers and both kinds of identity
 * provider. The servers do not repeat what they receive.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { startBackend, type TestBackend } from "../backend.ts";
import { startGateway, type TestGateway } from "../gateway.ts";
import { openFrontDoor } from "../identity/front-door.ts";
import { type IdentityProviderStandIn, openRealm, openTenant } from "../identity/identity-provider.ts";
import { REDIRECT_URI } from "../identity/mcp-login.ts";
import { createSigningKey, keySetOf, type SigningKey } from "../identity/tokens.ts";
import { startUpstream, type TestUpstream } from "../llm/upstream.ts";
import { type RemoteFixture, startRemote } from "../mcp/http-server.ts";
import { certificates } from "../tls/certificates.ts";
import { CLIENT_ID, configuration, plantConfigured, type Secrets } from "./configuration.ts";
import type { Planted } from "./planted.ts";

export interface PlantedGateway {
  readonly gateway: TestGateway;
  /** The configuration as written. */
  readonly yaml: string;
  readonly environment: Readonly<Record<string, string>>;
  /** The gateway's public origin, which login documents name. */
  readonly base: string;
  readonly secrets: Secrets;
  readonly signingKey: SigningKey;
  readonly backend: TestBackend;
  readonly llm: TestUpstream;
  readonly remote: RemoteFixture;
  readonly tenant: IdentityProviderStandIn;
  /** From now on a request to `/defect` meets a defect. */
  breakDown(): void;
}

export async function startPlantedGateway(t: TestContext, planted: Planted): Promise<PlantedGateway> {
  const kept = <Thing extends { close(): Promise<void> }>(thing: Thing): Thing => {
    t.after(() => thing.close());
    return thing;
  };
  const secrets = plantConfigured(planted);
  const door = kept(await openFrontDoor());
  const backend = kept(
    await openSilentBackend({
      cookie: planted.plant("cookie that a backend sets"),
      code: planted.plant("code in a location"),
      token: planted.plant("token in a location"),
    }),
  );
  const llm = kept(await startUpstream());
  const remote = kept(await startRemote("http"));
  const talkative = kept(await openTalkativeRemote());
  const realm = kept(await openRealm({ sendsIss: false }));
  const tenant = kept(
    await openTenant({ clientId: CLIENT_ID, clientSecret: secrets.clientSecret, redirectUri: REDIRECT_URI }),
  );
  const signingKey = createSigningKey("ES256", "k1");
  const yaml = configuration(secrets, {
    base: door.url,
    host: backend.host,
    llm: llm.host,
    remote: remote.url,
    talkative: talkative.url,
    realm: realm.issuer,
    tenant: tenant.issuer,
  });
  const environment = {
    API_KEY: secrets.apiKey,
    BACKEND_KEY: secrets.backendKey,
    CLIENT_SECRET: secrets.clientSecret,
    NUMBER: secrets.number,
  };
  let isBroken = false;
  const gateway = kept(
    await startGateway(yaml, {
      environment,
      files: {
        "jwks.json": JSON.stringify(keySetOf(signingKey)),
        "server.pem": certificates.server.cert,
        "server.key.pem": certificates.server.key,
        "backend.key": `${secrets.keyFile}\n`,
      },
      random() {
        if (isBroken) throw new Error("a defect that the test asked for");
        return 0;
      },
    }),
  );
  door.leadTo(gateway.port("default"));
  return {
    gateway,
    yaml,
    environment,
    base: door.url,
    secrets,
    signingKey,
    backend,
    llm,
    remote,
    tenant,
    breakDown() {
      isBroken = true;
    },
  };
}

/** Keeps what it received; its own secrets are in headers. */
async function openSilentBackend(answered: { cookie: string; code: string; token: string }): Promise<TestBackend> {
  const backend = await startBackend((req, res) => {
    const { method = "", url = "", headers, rawHeaders } = req;
    backend.received.push({ method, url, headers, rawHeaders, body: "" });
    req.resume();
    res.writeHead(200, {
      "content-type": "application/json",
      "set-cookie": `sid=${answered.cookie}`,
      location: `/next?state=1&code=${answered.code}#id_token=${answered.token}`,
    });
    res.end('{"ok":true}');
  });
  return backend;
}

/** An MCP server that refuses, and says with which key and at which address it was asked. */
async function openTalkativeRemote(): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    req.resume();
    res.writeHead(401, { "content-type": "text/plain" });
    res.end(`${req.headers["x-remote-token"]} is not accepted at ${req.url}`);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
