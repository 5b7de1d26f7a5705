import { eventually } from "./eventually.ts";
import type { TestGateway } from "./gateway.ts";

export const says = (text: string, more = ""): string =>
  `${more}gateways: { default: { port: 0 } }\nroutes: [{ policies: { directResponse: { body: ${text} } } }]\n`;

export const bodyOf = async (gateway: TestGateway, path = "/"): Promise<string> =>
  (await fetch(gateway.url() + path)).text();

export async function reloadState(
  gateway: TestGateway,
): Promise<Record<string, unknown> & { refused?: { problems: string[] } }> {
  const dump = (await (await fetch(`${gateway.adminUrl}/config_dump`)).json()) as { reload: never };
  return dump.reload;
}

/** Does something to the files and waits until it was loaded or refused. */
export async function after(gateway: TestGateway, change: () => void | Promise<void>): Promise<"loaded" | "refused"> {
  const from = gateway.log().length;
  await change();
  const find = (text: string): boolean =>
    gateway
      .log()
      .slice(from)
      .some((line) => line.includes(text));
  await eventually("the change was noticed", () => find("configuration loaded") || find("configuration rejected"));
  return find("configuration loaded") ? "loaded" : "refused";
}
