/**
 * Reads `spec.addresses` of a Gateway. An entry without a value requests any address, which the Service of the Gateway
 * gets anyway.
 */

import { canonicalAddress } from "../../http/host.ts";
import { type Fields, fieldsOf, listOf, textOf } from "../text/value-shapes.ts";
import type { Verdict } from "./documents.ts";

const IP_ADDRESS = "IPAddress";

/** Returns the condition for an address that is not an IP address, because a Service cannot request a host name. */
export function unsupportedAddress(spec: Fields): Verdict | undefined {
  const types = listOf(spec.addresses).map((address) => textOf(fieldsOf(address).type) ?? IP_ADDRESS);
  const other = types.find((type) => type !== IP_ADDRESS);
  if (other === undefined) return undefined;
  const message = `spec.addresses: the type ${other} is not supported: use ${IP_ADDRESS}`;
  return { isTrue: false, reason: "UnsupportedAddress", message };
}

export function requestedAddresses(spec: Fields): string[] {
  const values = listOf(spec.addresses).flatMap((address) => textOf(fieldsOf(address).value) ?? []);
  return values.filter((value) => value !== "").map(canonicalAddress);
}

export function notUsable(message: string): Verdict {
  return { isTrue: false, reason: "AddressNotUsable", message };
}
