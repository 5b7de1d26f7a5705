/**
 * Converts TLS settings of agentgateway's listeners. Listeners that share a port become certificates that are selected
 * by server name.
 */
import { defined } from "../../json/json.ts";
import { type Conversion, isObject, unknownFields, type Values } from "./conversion.ts";

const TAKEN = ["cert", "key", "root", "minTLSVersion"];
/** Without these settings, TLS is still as strict about clients. */
const LEFT_OUT = ["maxTLSVersion", "cipherSuites", "keyExchangeGroups"];
const CLIENTS = "client certificates (`root`) differ between the listeners of a port";

export interface PortTls {
  readonly tls: Values | undefined;
  readonly conflict: string | undefined;
}

export function tlsOf(tls: Values, at: string, conversion: Conversion): Values {
  const { cert, key, root, minTLSVersion } = tls;
  const others = unknownFields(tls, TAKEN);
  for (const name of LEFT_OUT) if (name in tls) conversion.leftOut.push(`${at}.tls.${name}: there is no counterpart`);
  return defined({
    // The loader rejects these fields, such as client certificates of another kind, and the gateway is closed.
    ...unknownFields(others, LEFT_OUT),
    cert,
    key,
    minVersion: /1[._]?3/.test(String(minTLSVersion)) ? "TLSv1.3" : undefined,
    clientAuth: root === undefined ? undefined : { ca: root },
  });
}

export function portTls(listeners: readonly Values[], at: string, conversion: Conversion): PortTls {
  const entries = listeners.flatMap(({ tls, hostname }, index) =>
    isObject(tls) ? [{ hostname, ...tlsOf(tls, `${at}.listeners[${index}]`, conversion) } as Values] : [],
  );
  const [first] = entries;
  if (first === undefined) return { tls: undefined, conflict: undefined };
  if (entries.length < listeners.length)
    conversion.differs.push(
      `${at}: a port serves TLS for all of its listeners or for none; this one serves it for all`,
    );
  const { hostname: _hostname, ...only } = first;
  if (entries.length === 1) return { tls: only, conflict: undefined };
  const isSame = (field: string): boolean =>
    entries.every((entry) => JSON.stringify(entry[field]) === JSON.stringify(first[field]));
  const minVersion = entries.some((entry) => entry.minVersion !== undefined) ? "TLSv1.3" : undefined;
  const clientAuth = isSame("clientAuth") ? first.clientAuth : undefined;
  const certificates = entries.map(({ cert, key, hostname }) =>
    defined({ cert, key, hosts: hostname === undefined ? undefined : [hostname] }),
  );
  const others = entries.map((entry) => unknownFields(entry, ["cert", "key", "hostname", "minVersion", "clientAuth"]));
  return {
    tls: defined({ ...Object.assign({}, ...others), certificates, minVersion, clientAuth }),
    conflict: isSame("clientAuth") ? undefined : CLIENTS,
  };
}
