ruleset app_section_collection {
  meta {
    name "Section Collection"
    description << The parent of the sections: makes them, and passes requests on to them. >>
    shares sections, sectionCount
  }
  global {
    sections = function() {
      ent:sections.defaultsTo({}).keys()
    }
    sectionCount = function() {
      ent:sections.defaultsTo({}).keys().length()
    }
    section_url = function() {
      parts = ctx:rid_url.split("/")
      parts.splice(parts.length() - 1, 1, "app_section.krl").join("/")
    }
  }
  rule create {
    select when section needed or section may_need_creation
    pre { section_id = event:attr("section_id") }
    if section_id && ent:sections{[section_id]}.isnull() then every {
      ctx:newPico(rulesets=[{"url": section_url(), "config": {}}]) setting(made)
      event:send({"eci": made, "domain": "section", "type": "config_empty",
        "attrs": {"section_id": section_id, "capacity": event:attr("capacity").defaultsTo(0)}})
      send_directive("section_ready", {"section_id": section_id, "section_state": "creating"})
    }
    fired {
      ent:sections{[section_id]} := made
    }
    else {
      raise section event "ready_needed" attributes event:attrs if section_id
    }
  }
  rule ready {
    select when section ready_needed
    pre {
      section_id = event:attr("section_id")
      section = ent:sections{[section_id]}
    }
    every {
      ctx:eventQuery(eci=section, domain="section", name="channel_needed", attrs={}, rid="app_section", queryName="channel") setting(eci)
      send_directive("section_ready", {"section_id": section_id, "section_state": "ready", "eci": eci})
    }
  }
  rule pass_on {
    select when section add_request or section drop_request or section add or section drop
    pre { section = ent:sections{[event:attr("section_id")]} }
    if section then
      event:send({"eci": section, "domain": "section", "type": event:name, "attrs": event:attrs})
    notfired {
      error warn "there is no section " + event:attr("section_id")
    }
  }
  rule offline {
    select when section offline
    pre {
      section_id = event:attr("section_id")
      section = ent:sections{[section_id]}
    }
    if section then ctx:delPico(section)
    fired { clear ent:sections{[section_id]} }
  }
  rule empty {
    select when collection empty
    foreach ent:sections.defaultsTo({}) setting(section, section_id)
    ctx:delPico(section)
    fired { clear ent:sections{[section_id]} }
  }
}
