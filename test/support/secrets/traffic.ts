/**
 * Traffic with secrets in every place that clients can use: valid, invalid and malformed credentials, cookies,
 * sensitive headers, and requests to token and registration endpoints.
 */
import { connect } from "node:net";
import { logIn } from "../identity/mcp-login.ts";
import { initialize } from "../identity/protected-gateway.ts";
import { signToken } from "../identity/tokens.ts";
import { CLIENT_ID, ISSUER } from "./configuration.ts";
import type { Outputs } from "./outputs.ts";
import type { Planted } from "./planted.ts";
import type { PlantedGateway } from "./set-up.ts";

const FORM = { "content-type": "application/x-www-form-urlencoded" };
const JSON_BODY = { "content-type": "application/json" };

/** Sends everything; answers of the gateway itself are added to the outputs. */
export async function sendTraffic(set: PlantedGateway, planted: Planted, outputs: Outputs): Promise<void> {
  const client = {
    cookie: `sid=${planted.plant("cookie of a client")}`,
    "x-internal-token": planted.plant("sensitive header of a client"),
    referer: `http://client.test/callback?code=${planted.plant("code in a referer")}`,
    "proxy-authorization": `Basic ${planted.plant("proxy credential of a client")}`,
  };
  let count = 0;
  async function send(path: string, status: number, init: RequestInit = {}): Promise<void> {
    const headers = {
      ...client,
      "x-request-id": `r${count++}${path.replace(/\W/g, "-").slice(0, 20)}`,
      ...init.headers,
    };
    const response = await fetch(`${set.base}${path}`, { redirect: "manual", ...init, headers });
    if (response.status !== status)
      throw new Error(`${path}: ${response.status} instead of ${status}: ${await response.text()}`);
    // An answer that a backend or provider gave is the client's own business.
    if (response.headers.has("x-gateway-error")) await outputs.addAnswer("answers of the gateway", response);
    else await response.text();
  }

  await sendKeys(set, planted, send);
  await sendTokens(set, planted, send);
  await sendToBackends(set, planted, send);
  await sendToMcp(send);
  await sendLogins(set, planted, outputs, send);
  outputs.add("answer to a WebSocket", await upgrade(set, client));
}

type Send = (path: string, status: number, init?: RequestInit) => Promise<void>;

async function sendKeys({ secrets }: PlantedGateway, planted: Planted, send: Send): Promise<void> {
  const wrong = planted.plant("wrong API key");
  const basic = (user: string, password: string): RequestInit => ({
    headers: { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` },
  });
  await send("/keys", 200, { headers: { authorization: `Bearer ${secrets.apiKey}` } });
  await send("/keys", 200, { headers: { "x-api-key": secrets.plainKey } });
  await send("/keys", 401, { headers: { "x-api-key": wrong } });
  await send("/keys", 401, { headers: { authorization: `Bearer ${wrong} ${secrets.apiKey}` } });
  await send("/team", 200, { headers: { "x-team-key": secrets.teamKey } });
  await send("/team", 401, { headers: { "x-team-key": wrong } });
  await send("/passed-on", 200, { headers: { "x-team-key": secrets.teamKey } });
  await send(`/query?team=${encodeURIComponent(secrets.queryKey)}`, 200);
  await send(`/query?a=1&team=${wrong}&b=2`, 401);
  await send("/basic", 200, basic("bob", secrets.password));
  await send("/basic", 401, basic("bob", wrong));
  await send("/basic", 401, { headers: { authorization: `Basic ${wrong}` } });
  await send("/policied", 200, { headers: { "x-api-key": secrets.policyKey } });
  await send("/policied", 401, { headers: { "x-api-key": wrong } });
  await send("/misspelt", 500, { headers: { "x-api-key": secrets.misspelt } });
}

async function sendTokens({ signingKey }: PlantedGateway, planted: Planted, send: Send): Promise<void> {
  const now = Math.floor(Date.now() / 1000);
  const good = { iss: ISSUER, aud: "gateway", sub: "alice", exp: now + 86_400 };
  const sign = (name: string, changes: object, header = {}): string =>
    planted.addToken(name, signToken({ key: signingKey, claims: { ...good, jti: name, ...changes }, header }));
  const tokens: [number, string][] = [
    [200, sign("good token", {})],
    [403, sign("token of somebody else", { sub: "eve" })],
    [401, sign("expired token", { exp: now - 3600 })],
    [401, sign("token for another audience", { aud: "other" })],
    [401, sign("token of another issuer", { iss: "http://other.test" })],
    [401, sign("token with an unknown key", {}, { kid: "k9" })],
    [401, sign("token without a signature algorithm", {}, { alg: "none" })],
    [401, sign("token of a compressed form", {}, { zip: "DEF" })],
    [401, sign("cut token", {}).slice(0, -10)],
    [401, `${planted.plant("token of one part")}`],
    [
      401,
      ["a", "b", "c"]
        .map((part) => Buffer.from(planted.plant(`part ${part} of a token`)).toString("base64url"))
        .join("."),
    ],
  ];
  for (const [status, token] of tokens) await send("/jwt", status, { headers: { authorization: `Bearer ${token}` } });
  await send("/mcp", 401, initialize(sign("token of the wrong provider", {})));
}

async function sendToBackends(set: PlantedGateway, planted: Planted, send: Send): Promise<void> {
  const bearer = { authorization: `Bearer ${planted.plant("bearer token of a client")}` };
  const parameter = planted.plant("token in a query");
  for (const path of ["open", "added", "backend-key", "backend-header", "backend-file", "shop"])
    await send(`/${path}?access_token=${parameter}`, 200, { headers: bearer });
  await send("/matched", 200, { headers: { ...bearer, "x-internal-token": set.secrets.matched } });
  await send("/matched", 404, { headers: bearer });
  await send("/down", 502, { headers: bearer });
  for (const path of ["failing", "denied"]) await send(`/${path}`, path === "denied" ? 403 : 200, { headers: bearer });
  const chat = (model: string): RequestInit => ({
    method: "POST",
    headers: { ...JSON_BODY, ...bearer },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "hello" }] }),
  });
  for (const path of ["openai", "gemini", "bedrock"])
    await send(`/${path}/v1/chat/completions`, 200, chat("some-model"));
  await send("/openai/v1/chat/completions", 401, chat("fail-401"));
  set.breakDown();
  await send("/defect", 500, { headers: bearer });
}

async function sendToMcp(send: Send): Promise<void> {
  await send("/tools", 200, initialize());
  await send("/talkative", 200, initialize());
  await send("/talkative-remote", 200, initialize());
}

/** A whole login through the proxied endpoints, and requests to them that fail. */
async function sendLogins(set: PlantedGateway, planted: Planted, outputs: Outputs, send: Send): Promise<void> {
  const endpoints = `${set.base}/.well-known/oauth-authorization-server`;
  const session = await logIn("2.x", `${set.base}/mcp`);
  await session.client.listTools();
  const { access_token: accessToken = "", refresh_token: refreshToken = "" } = session.store.tokens ?? {};
  planted.addToken("access token of a login", accessToken);
  planted.add("refresh token of a login", refreshToken);
  planted.add("code of a login", session.callback.get("code") ?? "");
  await session.client.close();
  await send("/mcp", 401, initialize(`${accessToken}x`));

  const form = (fields: Record<string, string>): RequestInit => ({
    method: "POST",
    headers: FORM,
    body: new URLSearchParams({ client_id: CLIENT_ID, ...fields }).toString(),
  });
  const token = "/.well-known/oauth-authorization-server/mcp/token";
  const refreshed = await fetch(
    `${set.base}${token}`,
    form({ grant_type: "refresh_token", refresh_token: refreshToken }),
  );
  if (refreshed.status !== 200) throw new Error(`refresh: ${refreshed.status} ${await refreshed.text()}`);
  const renewed = (await refreshed.json()) as { access_token: string; refresh_token: string };
  planted.addToken("renewed access token", renewed.access_token);
  planted.add("renewed refresh token", renewed.refresh_token);

  const bad = {
    code: planted.plant("wrong code"),
    code_verifier: planted.plant("wrong verifier"),
    client_secret: planted.plant("secret of a client"),
    redirect_uri: "http://127.0.0.1:33418/callback",
  };
  await send(token, 401, form({ grant_type: "authorization_code", ...bad }));
  await send(token, 400, form({ grant_type: "refresh_token", refresh_token: planted.plant("wrong refresh token") }));
  const repeated = planted.plant("repeated code");
  await send(token, 400, {
    method: "POST",
    headers: FORM,
    body: `grant_type=authorization_code&code=${repeated}&code=${repeated}`,
  });
  await send(token, 400, {
    method: "POST",
    headers: JSON_BODY,
    body: JSON.stringify({ ...bad, client_assertion: planted.plant("assertion") }),
  });
  await send(
    `${token}?client_secret=${planted.plant("secret in a query")}&code=${planted.plant("code in a query")}`,
    405,
  );

  const registration = await fetch(`${endpoints}/realm/client-registration`, {
    method: "POST",
    headers: { ...JSON_BODY, authorization: `Bearer ${planted.plant("initial access token")}` },
    body: JSON.stringify({
      redirect_uris: [bad.redirect_uri],
      token_endpoint_auth_method: "client_secret_post",
      response_types: ["code"],
    }),
  });
  const registered = (await registration.json()) as { client_secret: string; registration_access_token: string };
  planted.add("secret of a registered client", registered.client_secret);
  planted.add("access token of a registration", registered.registration_access_token);
  const wrong = { client_secret: planted.plant("secret that a client proposes"), redirect_uris: "none" };
  for (const provider of ["realm", "mcp"])
    await send(`/.well-known/oauth-authorization-server/${provider}/client-registration`, 400, {
      method: "POST",
      headers: JSON_BODY,
      body: JSON.stringify(wrong),
    });
  const preflight = await fetch(`${endpoints}/mcp/token`, { method: "OPTIONS" });
  await outputs.addAnswer("answers of the gateway", preflight);
}

/** A WebSocket that is refused: its head is all there is. */
function upgrade(set: PlantedGateway, headers: Readonly<Record<string, string>>): Promise<string> {
  const lines = Object.entries({
    ...headers,
    host: "gateway.test",
    connection: "upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "x-api-key": set.secrets.backendKey,
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = connect(set.gateway.port("default"), "127.0.0.1", () =>
      socket.write(`GET /keys HTTP/1.1\r\n${lines.join("")}\r\n`),
    );
    socket.on("data", (chunk) => {
      text += chunk.toString();
      if (text.includes("\r\n\r\n")) socket.end();
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(text));
  });
}
