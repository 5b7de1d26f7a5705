/**
 * `/upgrade`: starts the program again as it is on disk now, with the sockets and the state of this process, and answers
 * when the new process serves. If it does not come up, the answer says why and this process continues.
 */
import { type AdminEndpoint, textAnswer } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

export type UpgradeAnswer =
  | { readonly ok: true; readonly pid: number; readonly version: string }
  | { readonly ok: false; readonly reason: string };

export function upgradeEndpoint(upgrade: () => Promise<UpgradeAnswer>): AdminEndpoint {
  return {
    path: ADMIN_PATHS.upgrade,
    doc: "POST: starts the new version of the program, hands the sockets over, and drains.",
    async POST() {
      const outcome = await upgrade();
      return outcome.ok
        ? textAnswer(
            200,
            `upgraded to version ${outcome.version}, process ${outcome.pid}; process ${process.pid} drains\n`,
          )
        : textAnswer(500, `not upgraded, process ${process.pid} continues: ${outcome.reason}\n`);
    },
  };
}
