// A command, a refusal and a problem by the client that openapi-generator (typescript-fetch) wrote for the bank.
import { AccountApi, Configuration, ResponseError } from './index'

const api = new AccountApi(new Configuration({ basePath: process.env.THRONG_URL }))
const refused = async (asked: Promise<unknown>): Promise<{ status: number; type: string; rejection?: { balance_too_low: { cents: number } } }> => {
  try {
    await asked
  } catch (error) {
    if (error instanceof ResponseError) return await error.response.json()
    throw error
  }
  throw new Error('not refused')
}
const same = (found: unknown, expected: unknown): void => {
  if (found !== expected) throw new Error(`${found}, not ${expected}`)
}

const main = async (): Promise<void> => {
  const id = 'ü/typescript'
  await api.accountOpen({ id, body: {} })
  same((await api.accountDeposit({ id, accountDepositRequest: { cents: 500 } })).cents, 500)
  same((await api.accountGetView({ id })).cents, 500)
  const refusal = await refused(api.accountWithdraw({ id, accountDepositRequest: { cents: 900 } }))
  same(refusal.status, 409)
  same(refusal.rejection?.balance_too_low.cents, 500)
  same((await refused(api.accountGetView({ id: 'nobody' }))).type, '/problems/unknown-entity')
}
main().catch(error => { console.error(error); process.exit(1) })
