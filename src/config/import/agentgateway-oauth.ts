/**
 * Converts agentgateway's credentials for backends that an authorization server issues.
 */
import { asList, asObject, type Conversion, defined, isObject, leaveOutOthers, type Values } from "./conversion.ts";

const CLIENT_AUTH: Readonly<Record<string, string>> = { clientSecretBasic: "basic", clientSecretPost: "post" };
const SERVER = ["host", "path", "clientAuth"];
const EXCHANGE = ["grantType", "audiences", "resources", "scopes", "additionalParams", "subjectToken", "cache"];
const CROSS_APP = [
  "identityProvider",
  "resourceAuthorizationServer",
  "audience",
  "resources",
  "scopes",
  "subjectToken",
];
/** The verified token is always the one that is exchanged here. */
const OWN_TOKEN = /^\s*jwt\.rawToken(?:\.unredacted\(\))?\s*$/;

export function oauthOf(value: Values, at: string, conversion: Conversion): Values {
  const place = `${at}.oauthTokenExchange.`;
  const { audiences, resources, scopes, additionalParams, grantType } = value;
  leaveOutOthers(conversion, place, value, [...SERVER, ...EXCHANGE], "there is no counterpart");
  const parameters = Object.entries(asObject(additionalParams)).flatMap(([name, source]) => {
    const literal = /^\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*$/.exec(String(source));
    if (literal === null) conversion.leftOut.push(`${place}additionalParams.${name}: here it is a fixed string`);
    return literal === null ? [] : [[name, literal[1] ?? literal[2] ?? ""] as const];
  });
  return defined({
    ...serverOf(value, place, conversion),
    grant: grantType === "jwtBearer" ? "jwtBearer" : undefined,
    audiences,
    resources,
    scopes,
    parameters: parameters.length === 0 ? undefined : Object.fromEntries(parameters),
    ...subjectOf(value, place, conversion),
  });
}

export function crossAppOf(value: Values, at: string, conversion: Conversion): Values {
  const place = `${at}.crossAppAccess.`;
  const { audience, resources, scopes } = value;
  leaveOutOthers(conversion, place, value, [...CROSS_APP, "cache"], "there is no counterpart");
  return defined({
    identityProvider: serverOf(asObject(value.identityProvider), `${place}identityProvider.`, conversion),
    resourceServer: serverOf(
      asObject(value.resourceAuthorizationServer),
      `${place}resourceAuthorizationServer.`,
      conversion,
    ),
    audience,
    resources,
    scopes,
    ...subjectOf(value, place, conversion),
  });
}

function serverOf({ host, path, clientAuth }: Values, at: string, conversion: Conversion): Values {
  const { clientId, clientSecret, method } = asObject(clientAuth);
  const auth = CLIENT_AUTH[String(method ?? "clientSecretBasic")];
  if (auth === undefined)
    conversion.leftOut.push(`${at}clientAuth.method: here it is clientSecretBasic or clientSecretPost`);
  const server = String(host ?? "");
  const origin = /^https?:\/\//.test(server) ? server : `${server.endsWith(":443") ? "https" : "http"}://${server}`;
  return defined({
    tokenUrl: `${origin}${typeof path === "string" ? path : ""}`,
    clientId,
    clientSecret,
    clientAuth: auth === "post" ? "post" : undefined,
  });
}

/** The lifetime of cached tokens is that of the token here, at most 5 minutes. */
function subjectOf({ subjectToken, cache }: Values, at: string, conversion: Conversion): Values {
  if (cache !== undefined) conversion.differs.push(`${at}cache: tokens are kept until they expire, at most 5m`);
  const { source, tokenType, ...others } = asObject(subjectToken);
  leaveOutOthers(conversion, `${at}subjectToken.`, others, [], "there is no counterpart");
  const { expression } = asObject(source);
  const isOwn = source === undefined || (isObject(source) && OWN_TOKEN.test(String(expression ?? "")));
  if (!isOwn) conversion.leftOut.push(`${at}subjectToken.source: here it is the client's bearer token`);
  const [type] = asList(tokenType).map((one) => String(one).split(":").at(-1));
  return defined({ subjectTokenType: type });
}
