/**
 * Reads a credential from a header, with an optional scheme, or from a query parameter. More than one value is
 * invalid, because the gateway and a backend could each use a different value.
 */
import { z } from "zod";
import { readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import { headerName } from "../../core/schema.ts";
import type { CredentialPlaces } from "../../record/trace/redact.ts";

const QUERY = peerInput("client/query");

export const credentialLocation = z.union([
  z.strictObject({
    header: z.strictObject({
      name: headerName().describe("The header's name."),
      prefix: z.string().optional().describe("The prefix of the credential, for example `Bearer `."),
    }),
  }),
  z.strictObject({ queryParameter: z.strictObject({ name: z.string().regex(/^[A-Za-z0-9._~-]+$/) }) }),
]);

export type CredentialLocation = z.output<typeof credentialLocation>;

export const BEARER_LOCATION: CredentialLocation = { header: { name: "authorization", prefix: "Bearer " } };

export function credentialPlaces(location: CredentialLocation): CredentialPlaces {
  return "header" in location ? { headers: [location.header.name] } : { parameters: [location.queryParameter.name] };
}

export type FoundCredential =
  | { readonly kind: "none" }
  | { readonly kind: "found"; readonly value: string }
  /** The header or parameter is present, but does not contain exactly one credential in the expected format. */
  | { readonly kind: "bad"; readonly detail: string };

const NONE: FoundCredential = { kind: "none" };

export function readCredential(request: GatewayRequest, location: CredentialLocation): FoundCredential {
  if ("header" in location) return readHeader(request, location.header.name, location.header.prefix ?? "");
  return readParameter(request, location.queryParameter.name);
}

/** Withholds the credential from backends. With `restorable`, a `backendAuth` policy may still forward a header. */
export function withhold(exchange: Exchange, location: CredentialLocation, restorable: boolean): void {
  if ("queryParameter" in location) {
    exchange.credentials.query ??= [];
    exchange.credentials.query.push(location.queryParameter.name);
    return;
  }
  const { name } = location.header;
  exchange.credentials.headers ??= [];
  if (!exchange.credentials.headers.includes(name)) exchange.credentials.headers.push(name);
  const value = exchange.request.headers.get(name);
  if (restorable && value !== undefined) exchange.credentials.presented = { header: name, value };
}

function readHeader(request: GatewayRequest, name: string, prefix: string): FoundCredential {
  const { pairs } = request.headers;
  let line: string | undefined;
  for (let i = 0; i < pairs.length; i += 2) {
    if (pairs[i] !== name) continue;
    if (line !== undefined) return { kind: "bad", detail: `more than one ${name} header` };
    line = pairs[i + 1] as string;
  }
  if (line === undefined) return NONE;
  if (prefix === "") return line === "" ? NONE : { kind: "found", value: line };
  // Schemes are case-insensitive (RFC 9110 section 11.1). A different scheme is for another authentication mechanism.
  const scheme = prefix.trimEnd();
  if (line.slice(0, scheme.length).toLowerCase() !== scheme.toLowerCase()) return NONE;
  const rest = line.slice(scheme.length);
  if (rest !== "" && prefix !== scheme && rest[0] !== " " && rest[0] !== "\t") return NONE;
  // One or more spaces separate the scheme from the credential (RFC 9110 section 11.4).
  const value = prefix === scheme ? rest : rest.replace(/^[ \t]+/, "");
  if (value === "" || /[\s,]/.test(value))
    return { kind: "bad", detail: `the ${name} header is not \`${prefix}\` and one credential` };
  return { kind: "found", value };
}

function readParameter(request: GatewayRequest, name: string): FoundCredential {
  const values = request.query.split("&").filter((part) => part === name || part.startsWith(`${name}=`));
  const [first] = values;
  if (first === undefined) return NONE;
  if (values.length > 1) return { kind: "bad", detail: `more than one ${name} parameter` };
  const value = readForm(QUERY, first).get(name) ?? "";
  return value === "" ? { kind: "bad", detail: `the ${name} parameter is empty` } : { kind: "found", value };
}
