/**
 * Converts agentgateway's credentials for backends that an authorization server issues. Fields without a counterpart
 * stay as they are, so that the loader rejects them and their route is closed: without them, a token could be valid for
 * other servers too.
 */
import { defined } from "../../json/json.ts";
import { asList, asObject, type Conversion, isObject, unknownFields, type Values } from "./conversion.ts";

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
  const parameters: [string, string][] = [];
  const computed: [string, unknown][] = [];
  for (const [name, source] of Object.entries(asObject(additionalParams))) {
    const literal = /^\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*$/.exec(String(source));
    if (literal === null) computed.push([name, source]);
    else parameters.push([name, literal[1] ?? literal[2] ?? ""]);
  }
  return defined({
    ...unknownFields(value, [...SERVER, ...EXCHANGE]),
    additionalParams: computed.length === 0 ? undefined : Object.fromEntries(computed),
    ...serverOf(value),
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
  const { identityProvider, resourceAuthorizationServer: resourceServer } = value;
  return defined({
    ...unknownFields(value, [...CROSS_APP, "cache"]),
    identityProvider: { ...unknownFields(asObject(identityProvider), SERVER), ...serverOf(asObject(identityProvider)) },
    resourceServer: { ...unknownFields(asObject(resourceServer), SERVER), ...serverOf(asObject(resourceServer)) },
    audience,
    resources,
    scopes,
    ...subjectOf(value, place, conversion),
  });
}

function serverOf({ host, path, clientAuth }: Values): Values {
  const { clientId, clientSecret, method } = asObject(clientAuth);
  const auth = CLIENT_AUTH[String(method ?? "clientSecretBasic")] ?? method;
  const server = String(host ?? "");
  const origin = /^https?:\/\//.test(server) ? server : `${server.endsWith(":443") ? "https" : "http"}://${server}`;
  return defined({
    tokenUrl: `${origin}${typeof path === "string" ? path : ""}`,
    clientId,
    clientSecret,
    clientAuth: auth === "basic" ? undefined : auth,
  });
}

/** The lifetime of cached tokens is that of the token here, at most 5 minutes. */
function subjectOf({ subjectToken, cache }: Values, at: string, conversion: Conversion): Values {
  if (cache !== undefined) conversion.differs.push(`${at}cache: tokens are kept until they expire, at most 5m`);
  const { source, tokenType, ...others } = asObject(subjectToken);
  const { expression } = asObject(source);
  const isOwn = source === undefined || (isObject(source) && OWN_TOKEN.test(String(expression ?? "")));
  const rest = isOwn ? others : { ...others, source };
  const [type] = asList(tokenType).map((one) => String(one).split(":").at(-1));
  return defined({ subjectTokenType: type, subjectToken: Object.keys(rest).length === 0 ? undefined : rest });
}
