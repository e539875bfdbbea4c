ruleset app_registration_owner {
  meta {
    name "Registration Owner"
    description << The pico that registration belongs to: makes the one where students register, and tells them where it is. >>
    shares registration
  }
  global {
    registration = function() {
      ent:registration
    }
    beside = function(name) {
      parts = ctx:rid_url.split("/")
      parts.splice(parts.length() - 1, 1, name).join("/")
    }
  }
  rule create {
    select when wrangler ruleset_installed where event:attr("rids") >< ctx:rid
    if ent:registration.isnull() then every {
      ctx:newPico(rulesets=[{"url": beside("app_registration.krl"), "config": {}}]) setting(made)
      ctx:upsertChannel(
        tags=["owner"],
        eventPolicy={"allow": [{"domain": "registration", "name": "channel_needed"}], "deny": []},
        queryPolicy={"allow": [], "deny": []}
      )
    }
    fired { ent:registration := made }
  }
  rule tell_channel {
    select when registration channel_needed student_id re#.#
    every {
      ctx:eventQuery(eci=ent:registration, domain="registration", name="channel_needed", attrs=event:attrs, rid="app_registration", queryName="channel") setting(eci)
      send_directive("registration", {"eci": eci})
    }
  }
  rule open_section {
    select when section needed
    event:send({"eci": ent:registration, "domain": "section", "type": "opened", "attrs": event:attrs})
  }
}
