/**
 * MCP with a signed token per request and rules about tools, in front of a server with 200 tools.
 */
import { generateKeyPairSync, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { makeCalls, openSession } from "../mcp/calls.mjs";
import { bareProgram } from "../peers/programs.mjs";
import { ECHO } from "../support/workloads.mjs";
import { agentgatewayRoute, gatewayRoute } from "./config.mjs";

const BRIDGE = fileURLToPath(new URL("../mcp/bare-bridge.mjs", import.meta.url));
const TOOLS = 200;
const ISSUER = "https://id.example";
const AUDIENCE = "bench";
const RULES = [
  'mcp.tool.name == "echo"',
  '"research" in jwt.groups && mcp.tool.name.startsWith("tool1")',
  'jwt.level > 3 && mcp.tool.name.endsWith("5")',
];

const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const headers = { authorization: `Bearer ${createToken()}` };

function createToken() {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const seconds = Math.floor(Date.now() / 1000);
  const claims = { iss: ISSUER, aud: AUDIENCE, sub: "ada", groups: ["research", "staff"], level: 2 };
  const signed = `${part({ alg: "ES256", typ: "JWT", kid: "bench" })}.${part({ ...claims, iat: seconds, exp: seconds + 36_000 })}`;
  const signature = sign("sha256", Buffer.from(signed), { key: privateKey, dsaEncoding: "ieee-p1363" });
  return `${signed}.${signature.toString("base64url")}`;
}

function routeOf({ port, folder }) {
  const file = join(folder, "keys.json");
  const key = { ...publicKey.export({ format: "jwk" }), kid: "bench", alg: "ES256", use: "sig" };
  writeFileSync(file, JSON.stringify({ keys: [key] }));
  const [cmd, ...args] = [...ECHO, String(TOOLS)];
  return {
    port,
    backend: { mcp: { targets: [{ name: "archive", stdio: { cmd, args } }] } },
    policies: {
      jwtAuth: { issuer: ISSUER, audiences: [AUDIENCE], jwks: { file } },
      mcpAuthorization: { rules: RULES },
    },
  };
}

const shared = {
  configure: {
    gateway: (place) => gatewayRoute(routeOf(place)),
    agentgateway: (place) => agentgatewayRoute(routeOf(place)),
    bare: ({ port }) => bareProgram(BRIDGE, port, ...ECHO, TOOLS),
  },
  async prepare(contestant) {
    contestant.sessions = [await openSession(contestant.port, headers)];
  },
};

export const MCP_ACCESS = [
  {
    ...shared,
    title: `MCP tools/call with JWT and tool rules, ${TOOLS} tools, 32 in flight`,
    run: ({ port, sessions }, count) => makeCalls({ port, sessions, connections: 32, count, headers }),
    perRound: 2000,
    warmUp: 8000,
  },
  {
    ...shared,
    title: `MCP tools/list with JWT and tool rules, ${TOOLS} tools, 8 in flight`,
    run: ({ port, sessions }, count) =>
      makeCalls({ port, sessions, connections: 8, count, headers, call: { method: "tools/list", params: {} } }),
    perRound: 200,
    warmUp: 1000,
  },
];
