/**
 * Converts agentgateway's prompt guards. Guards that cannot be converted stay as they are, so that the loader rejects
 * them and their route is closed.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { defined } from "../../json/json.ts";
import { readJson } from "../../json/read-json.ts";
import { asList, asObject, type Conversion, isObject, type Values } from "./conversion.ts";

const REJECTION_BODY = peerInput("file/imported-text");

/** The names of credentials differ. Other policies of a guard's backend have no counterpart. */
const CREDENTIALS: Readonly<Record<string, string>> = { aws: "aws", gcp: "google", azure: "azure" };

export function guardsOf(value: unknown, at: string, conversion: Conversion): unknown {
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([direction, list]) => [
      direction,
      Array.isArray(list)
        ? list.map((one, index) => guardOf(asObject(one), `${at}.promptGuard.${direction}[${index}]`, conversion))
        : list,
    ]),
  );
}

function guardOf(guard: Values, at: string, conversion: Conversion): Values {
  const { rejection, openAIModeration, azureContentSafety, ...others } = guard;
  const services = ["bedrockGuardrails", "googleModelArmor"].flatMap((name) =>
    isObject(others[name]) ? [[name, withAuth(asObject(others[name]))] as const] : [],
  );
  return defined({
    ...others,
    ...Object.fromEntries(services),
    openAIModeration: isObject(openAIModeration) ? withAuth(openAIModeration) : openAIModeration,
    azureContentSafety: isObject(azureContentSafety) ? azureOf(azureContentSafety) : azureContentSafety,
    rejection: isObject(rejection) ? rejectionOf(rejection, at, conversion) : rejection,
  });
}

function withAuth(service: Values): Values {
  const { policies, ...others } = service;
  const { backendAuth, ...more } = asObject(policies);
  const [[kind, value] = []] = Object.entries(asObject(backendAuth));
  const name = kind === undefined ? undefined : (CREDENTIALS[kind] ?? kind);
  return defined({
    ...others,
    auth: name === undefined ? undefined : { [name]: value },
    policies: Object.keys(more).length === 0 ? undefined : more,
  });
}

function azureOf(service: Values): Values {
  const { endpoint, ...others } = withAuth(service);
  const host = String(endpoint ?? "");
  return { ...others, endpoint: /^https?:\/\//.test(host) ? host : `https://${host}` };
}

/** The body is the message of an error in the format of the client's API here, not the whole response. */
function rejectionOf(rejection: Values, at: string, conversion: Conversion): Values {
  const { headers, body, ...others } = rejection;
  const names = [...Object.keys(asObject(asObject(headers).set)), ...Object.keys(asObject(asObject(headers).add))];
  for (const name of names.filter((one) => one.toLowerCase() !== "content-type"))
    conversion.leftOut.push(`${at}.rejection.headers: ${name}: there is no counterpart`);
  for (const name of asList(asObject(headers).remove))
    conversion.leftOut.push(`${at}.rejection.headers: ${String(name)}: there is no counterpart`);
  const message = typeof body === "string" ? messageIn(body) : undefined;
  if (message !== undefined)
    conversion.differs.push(`${at}.rejection.body: its message is sent in the error format of the client's API`);
  return defined({ ...others, body: message ?? body });
}

function messageIn(body: string): string | undefined {
  try {
    const parsed: unknown = readJson(REJECTION_BODY, body);
    const { error, message } = asObject(parsed);
    const found = asObject(error).message ?? message;
    return typeof found === "string" ? found : undefined;
  } catch {
    return undefined;
  }
}
